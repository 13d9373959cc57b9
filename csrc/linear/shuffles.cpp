// See shuffles.h.
#include "linear/shuffles.h"

#include <algorithm>
#include <new>

namespace mill::linear {
namespace {

struct Field {
  int level, sign;  // bits of an index where they begin
};
constexpr int kEightAt[4] = {2, 6, 0, 4}, kFourAt[4] = {0, 3, 3, 0};  // a level, by its number in a half or in the entry
constexpr Field kEightFields[2] = {{0, 2}, {4, 3}}, kFourFields[4] = {{0, 4}, {3, 1}, {3, 2}, {0, 3}};

uint8_t* room(size_t bytes) {  // zeros, for the life of the process
  auto* at = static_cast<uint8_t*>(::operator new(bytes, std::align_val_t{64}));
  std::fill(at, at + bytes, uint8_t{0});
  return at;
}

// -8, 0, 8 and no other.
const uint8_t* make_nibbles(const int8_t* values, int64_t entries) {
  uint8_t* table = room(static_cast<size_t>(4 * entries));
  for (int64_t i = 0; i < 8 * entries; ++i) {
    uint8_t& byte = table[i / 8 * 4 + i % 4];
    byte = static_cast<uint8_t>(byte | (values[i] / 2 + 4) << (i % 8 / 4 * 4));
  }
  return table;
}

}  // namespace

const uint8_t* shuffles[64] = {};

const uint8_t* make_shuffles(const int8_t* values, int64_t entries, int64_t width) {
  if (*std::min_element(values, values + entries * width) < 0) return make_nibbles(values, entries);
  const bool eight = width == 8;
  const int half = static_cast<int>(width) / 2, bits = eight ? 2 : 3, n_fields = eight ? 2 : 4;
  int8_t levels[8] = {};
  int count = 0;
  for (int64_t i = 0; i < entries * width; ++i)
    if (std::find(levels, levels + count, values[i]) == levels + count) {
      if (count == 1 << bits) return nullptr;
      levels[count++] = values[i];
    }
  const auto size = static_cast<size_t>(2 * entries + 64 * n_fields);
  uint8_t* tables = room(size);
  for (int64_t i = 0; i < entries; ++i)
    for (int k = 0; k < width; ++k) {
      const auto level = std::find(levels, levels + count, values[i * width + k]) - levels;
      uint8_t& byte = tables[k / half * entries + i];
      byte = static_cast<uint8_t>(byte | level << (eight ? kEightAt[k % 4] : kFourAt[k]));
    }
  for (int f = 0; f < n_fields; ++f)
    for (int i = 0; i < 64; ++i) {
      const Field at = eight ? kEightFields[f] : kFourFields[f];
      const int level = levels[i >> at.level & ((1 << bits) - 1)];
      tables[2 * entries + 64 * f + i] = static_cast<uint8_t>(64 + ((i >> at.sign & 1) != 0 ? -level : level));
    }
  return tables;
}

}  // namespace mill::linear
