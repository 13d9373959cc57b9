// A codebook as tables for byte shuffles, by type (null: none). Its values have few levels, so a byte holds those of half
// an entry; one of its other bits then gives way to the sign, and a table of 64 bytes has what level and sign make:
//   | first halves [entries] | second halves [entries] | fields x [64]: 64 +- level |
//   8 values   levels of 2 bits, those of values 0..3 (4..7) of a half at bits 2, 6, 0, 4
//              fields: level at bits 0-1, sign at 2; level at 4-5, sign at 3
//   4 values   levels of 3 bits, those of the entry at bits 0, 3 of the first half and 3, 0 of the second
//              fields, by value: level at 0-2, sign at 4; 3-5, 1; 3-5, 2; 0-2, 3
// IQ1's values v = -8, 0, 8 are nibbles v / 2 + 4 instead, a word for each entry: low nibbles 0..3, high ones 4..7.
#pragma once
#include <cstdint>

namespace mill::linear {

extern const uint8_t* shuffles[64];
const uint8_t* make_shuffles(const int8_t* values, int64_t entries, int64_t width);  // null: too many levels

}  // namespace mill::linear
