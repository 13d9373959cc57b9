// Quantising a finished piece of a row while it is in cache: what a product's input wants (csrc/linear/linear.h).
#pragma once

#include "linear/linear.h"
#include "ops/loops.h"

namespace mill::TM_ISA {

// out[0…2]: codes, scales, sums of one activation; of 16-bit codes no sums. Columns first…last of row r, from
// x[0…last−first): multiples of 32, or of 64 where the row does not end.
TM_INLINE void quantise_piece(const Tensor* out, int64_t r, int64_t first, int64_t last, const float* x) {
  const int64_t stride = out[0].s[2], at = r * stride + first;
  if (!out[2])
    return linear::kernels().code_words(x, last - first, 0, 1, last - first, static_cast<int16_t*>(out[0].data) + at,
                                        out[1].f32() + at / linear::kWordInputs, stride);
  linear::kernels().quantise_rows(x, last - first, 0, 1, last - first, static_cast<int8_t*>(out[0].data) + at,
                                  out[1].f32() + at / 32, static_cast<int16_t*>(out[2].data) + at / 16, stride);
}

}  // namespace mill::TM_ISA
