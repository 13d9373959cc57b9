// F32: float32 activations.
//
//   panel of 16 rows: for each input one line of 16 elements, | input 0: rows 0..15 | input 1: ... |; columns are
//   padded to an even number, so that every panel starts on a 64-byte line.
#pragma once
#include "linear/format.h"

namespace mill::TM_ISA::linear {

struct F32 {
  static constexpr int kBytes = 4;  // of an element
  static TM_INLINE Floats load(const uint8_t* p) { return load_floats(reinterpret_cast<const float*>(p)); }
};

template <class F> constexpr Geometry float_geometry() { return {1, F::kBytes, 2, 32 * F::kBytes, 0}; }

template <class F> void pack_float_panel(const uint8_t* const rows[16], int64_t columns, uint8_t* panel) {
  std::memset(panel, 0, static_cast<size_t>(panel_size(float_geometry<F>(), columns)));
  for (int64_t k = 0; k < columns; ++k)
    for (int r = 0; r < 16; ++r)
      std::memcpy(panel + (16 * k + r) * F::kBytes, rows[r] + k * F::kBytes, F::kBytes);
}

template <class F> void decode_float_row(const uint8_t* panel, int row, int64_t columns, float* out) {
  alignas(64) float line[16];
  for (int64_t k = 0; k < columns; ++k) {
    store(line, F::load(panel + 16 * k * F::kBytes));
    out[k] = line[row];
  }
}

}  // namespace mill::TM_ISA::linear
