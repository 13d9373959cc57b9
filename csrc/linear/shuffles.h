// A codebook as tables for byte shuffles, by type (null: none). Its values have few levels, so a byte holds half of an
// entry's:
//   | first halves [entries] | second halves [entries] | 3 x [64]: 64 + level in bits 0.., n.., 2 n.. of a byte |
// with n = 2 bits a level where an entry has 8 values, 3 where it has 4.
#pragma once
#include <cstdint>

namespace mill::linear {

extern const uint8_t* shuffles[64];
const uint8_t* make_shuffles(const int8_t* values, int64_t entries, int64_t width);  // null: too many levels

}  // namespace mill::linear
