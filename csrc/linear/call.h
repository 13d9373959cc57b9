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

// What a group needs of the activations besides codes and scales, for n groups of 32 inputs: where the int32
// accumulator starts, -offset * (sum of codes), and with mins float(sum of codes) * scale.
template <class S>
TM_INLINE void prepare(const Tokens& x, int64_t n, int32_t* __restrict start, float* __restrict sum) {
  const float* __restrict scales = x.scales;
  const int16_t* __restrict sums = x.sums;
  if constexpr (S::kHalves) {
    for (int64_t h = 0; h < 2 * n; ++h) start[h] = -S::kOffset * sums[h];
  } else {
    for (int64_t g = 0; g < n; ++g) {  // both halves in one load: gcc makes vectors of this, not of two int16 loads
      const auto pair = static_cast<uint32_t>(load_i32(sums + 2 * g));
      start[g] = -S::kOffset * ((static_cast<int32_t>(pair << 16) >> 16) + (static_cast<int32_t>(pair) >> 16));
    }
  }
  if constexpr (!S::kMins) return;
  for (int64_t g = 0; g < n; ++g) {
    const auto pair = static_cast<uint32_t>(load_i32(sums + 2 * g));
    const int32_t low = static_cast<int32_t>(pair << 16) >> 16, high = static_cast<int32_t>(pair) >> 16;
    if constexpr (S::kHalves) {
      sum[2 * g] = static_cast<float>(low) * scales[g];
      sum[2 * g + 1] = static_cast<float>(high) * scales[g];
    } else {
      sum[g] = static_cast<float>(low + high) * scales[g];
    }
  }
}

TM_INLINE int valid_rows(const Matrix& m, int64_t panel) {  // rows of a panel that exist
  const int64_t left = m.rows - panel * kPanel;
  return static_cast<int>(left < kPanel ? left : kPanel);
}

TM_INLINE int tile_tokens(int64_t n) {  // equal tiles rather than a small last one
  const int64_t tiles = ceil_div(n, kTileTokens);
  return static_cast<int>(ceil_div(n, tiles));
}

}  // namespace mill::TM_ISA::linear
