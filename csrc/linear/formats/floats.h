// F32: float32 activations.
//
//   panel of 16 rows: for each input one line of 64 bytes, | input 0: rows 0..15 | input 1: ... |
#pragma once
#include "linear/format.h"

namespace mill::TM_ISA::linear {

inline constexpr Geometry kFloatGeometry = {1, 4, 1, 64, 0};

inline void pack_floats(const uint8_t* const rows[16], int64_t columns, uint8_t* panel) {
  for (int64_t k = 0; k < columns; ++k)
    for (int r = 0; r < 16; ++r) std::memcpy(panel + 4 * (16 * k + r), rows[r] + 4 * k, 4);
}

inline void decode_float_row(const uint8_t* panel, int row, int64_t columns, float* out) {
  for (int64_t k = 0; k < columns; ++k) std::memcpy(out + k, panel + 4 * (16 * k + row), 4);
}

}  // namespace mill::TM_ISA::linear
