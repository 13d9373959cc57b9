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

}  // namespace

const uint8_t* shuffles[64] = {};

const uint8_t* make_shuffles(const int8_t* values, int64_t entries, int64_t width) {
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
  auto* tables = static_cast<uint8_t*>(::operator new(size, std::align_val_t{64}));  // for the life of the process
  std::fill(tables, tables + size, uint8_t{0});
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
