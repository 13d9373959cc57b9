// What one multiply was asked for: rows of x and out by their lists, and the cut into tiles.
#pragma once
#include "linear/format.h"

namespace mill::TM_ISA::linear {

struct Tokens {  // one row of quantised activations, from some input on
  const int8_t* codes;
  const float* scales;
  const int16_t* sums;
};

struct Call {
  const Activations& x;
  const int32_t* x_rows;
  int64_t n_tokens;
  float* out;
  int64_t out_stride;
  const int32_t* out_rows;

  TM_INLINE int64_t x_at(int64_t i) const { return (x_rows != nullptr ? x_rows[i] : i) * x.stride; }
  TM_INLINE const float* values(int64_t i) const { return x.values + x_at(i); }
  TM_INLINE Tokens token(int64_t i, int64_t first_input = 0) const {
    const int64_t at = x_at(i) + first_input;
    return {x.codes + at, x.scales + at / 32, x.sums + at / 16};
  }
  TM_INLINE float* row(int64_t i) const { return out + (out_rows != nullptr ? out_rows[i] : i) * out_stride; }
};

TM_INLINE int valid_rows(const Matrix& m, int64_t panel) {  // rows of a panel that exist
  const int64_t left = m.rows - panel * kPanel;
  return static_cast<int>(left < kPanel ? left : kPanel);
}

TM_INLINE int tile_tokens(int64_t n) {  // equal tiles rather than a small last one
  const int64_t tiles = ceil_div(n, kTileTokens);
  return static_cast<int>(ceil_div(n, tiles));
}

}  // namespace mill::TM_ISA::linear
