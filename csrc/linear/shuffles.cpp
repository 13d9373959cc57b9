// See shuffles.h.
#include "linear/shuffles.h"

#include <algorithm>
#include <new>

namespace mill::linear {

const uint8_t* shuffles[64] = {};

const uint8_t* make_shuffles(const int8_t* values, int64_t entries, int64_t width) {
  int8_t levels[8] = {};
  int count = 0;
  for (int64_t i = 0; i < entries * width; ++i)
    if (std::find(levels, levels + count, values[i]) == levels + count) {
      if (count == 8) return nullptr;
      levels[count++] = values[i];
    }
  const int half = static_cast<int>(width) / 2, bits = width == 8 ? 2 : 3;
  if (count > 1 << bits) return nullptr;
  const auto size = static_cast<size_t>(2 * entries + 3 * 64);
  auto* tables = static_cast<uint8_t*>(::operator new(size, std::align_val_t{64}));  // for the life of the process
  std::fill(tables, tables + size, uint8_t{0});
  for (int64_t i = 0; i < entries; ++i)
    for (int k = 0; k < width; ++k) {
      const auto level = std::find(levels, levels + count, values[i * width + k]) - levels;
      uint8_t& byte = tables[k / half * entries + i];
      byte = static_cast<uint8_t>(byte | level << (k % half * bits));
    }
  for (int f = 0; f < 3; ++f)
    for (int i = 0; i < 64; ++i)
      tables[2 * entries + 64 * f + i] = static_cast<uint8_t>(64 + levels[i >> (f * bits) & ((1 << bits) - 1)]);
  return tables;
}

}  // namespace mill::linear
