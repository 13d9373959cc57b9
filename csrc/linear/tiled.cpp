// See tiled.h.
#include "linear/tiled.h"

#ifdef TM_HAS_amx

#include <cstring>
#include <new>
#include <vector>

namespace mill {
namespace avx512 { extern const linear::Kernels linear_kernels; }

namespace linear {
namespace {

constexpr int64_t kRows = 37, kColumns = 768;  // an odd row; more than one chunk of 512

struct Numbers {
  uint32_t state = 1;
  uint8_t byte() { return static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24); }
};

struct Lines {  // bytes that begin on a line
  explicit Lines(int64_t n) : at(static_cast<uint8_t*>(::operator new(static_cast<size_t>(n), std::align_val_t{64}))) {}
  ~Lines() { ::operator delete(at, std::align_val_t{64}); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  uint8_t* at;
};

// Bytes of the file, of which any two are an f16 below 2.
std::vector<uint8_t> random_rows(const Description& d, Numbers& numbers) {
  std::vector<uint8_t> rows(static_cast<size_t>(panels(kRows) * kPanel * kColumns / d.file_inputs * d.file_bytes));
  for (uint8_t& byte : rows) byte = numbers.byte() & 0xBF;
  return rows;
}

}  // namespace

bool agrees(Multiply* multiply, Type type, int64_t n) {
  const Kernels& kernels = avx512::linear_kernels;
  Numbers numbers;
  Description d{};
  if (!kernels.describe(type, &d)) return false;
  const std::vector<uint8_t> rows = random_rows(d, numbers);
  const int64_t row = kColumns / d.file_inputs * d.file_bytes, panel = packed_panel_bytes(d, kColumns);
  const Lines packed(panels(kRows) * panel), scratch(static_cast<int64_t>(kScratchBytes));
  for (int64_t p = 0; p < panels(kRows); ++p) {
    const uint8_t* at[kPanel];
    for (int64_t r = 0; r < kPanel; ++r) at[r] = rows.data() + (p * kPanel + r) * row;
    kernels.pack_panel(type, at, kColumns, packed.at + p * panel);
  }
  const auto size = static_cast<size_t>(n * kColumns);
  std::vector<float> values(size), scales(size / 32), expected(static_cast<size_t>(n * kRows)), found(expected.size(), -1.0f);
  std::vector<int8_t> codes(size);
  std::vector<int16_t> sums(size / 16);
  for (float& value : values) value = static_cast<float>(static_cast<int8_t>(numbers.byte())) * 0.37f;
  kernels.quantise_rows(values.data(), kColumns, 0, n, kColumns, codes.data(), scales.data(), sums.data(), kColumns);
  const Matrix m{type, kRows, kColumns, packed.at};
  const Activations x{nullptr, codes.data(), scales.data(), sums.data(), kColumns};
  kernels.multiply(m, 0, panels(kRows), x, nullptr, n, expected.data(), kRows, nullptr, scratch.at);
  multiply(m, 0, panels(kRows), x, nullptr, n, found.data(), kRows, nullptr, scratch.at);
  return std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) == 0;
}

}  // namespace linear
}  // namespace mill

#endif
