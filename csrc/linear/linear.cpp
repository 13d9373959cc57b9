// See linear.h: sizes and packing, on top of the kernels of the chosen instruction set.
#include "linear/linear.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "linear/shuffles.h"
#include "linear/tiled.h"

namespace mill {
TM_DECLARE_TABLE(linear::Kernels, linear_kernels)
}

namespace mill::linear {
namespace {

int64_t blocks(int64_t columns, int64_t block) { return (columns + block - 1) / block; }

// The codebook that a type reads, or the type itself for those without.
Type codebook_of(Type type) { return type == Type::IQ1_M ? Type::IQ1_S : type; }

bool needs_codebook(Type type) {
  switch (type) {
    case Type::IQ1_S: case Type::IQ1_M: case Type::IQ2_XXS: case Type::IQ2_XS: case Type::IQ2_S: case Type::IQ3_XXS:
    case Type::IQ3_S: return true;
    default: return false;
  }
}

Description description(Type type) {
  Description d{};
  if (!kernels().describe(type, &d))
    throw std::runtime_error("no kernels for ggml type " + std::to_string(static_cast<int>(type)));
  if (needs_codebook(type) && codebooks[static_cast<int>(codebook_of(type))] == nullptr)
    throw std::runtime_error("the codebook of ggml type " + std::to_string(static_cast<int>(type)) + " was not set");
  return d;
}

}  // namespace

const int8_t* codebooks[64] = {};

const Kernels& kernels() {
  static const Kernels chosen = [] {
    Kernels k = TM_SELECT(linear_kernels);
#ifdef TM_HAS_amx
    if (isa() == Isa::amx) k.multiply = amx::linear::multiply;
#endif
#ifdef TM_HAS_amx_emulated
    if (isa() == Isa::amx_emulated) k.multiply = amx_emulated::linear::multiply;
#endif
    return k;
  }();
  return chosen;
}

bool supported(Type type) {
  Description d;
  return kernels().describe(type, &d);
}

bool takes_codes(Type type) { return description(type).codes; }
bool takes_words(Type type) { return description(type).words; }
int64_t block_of(Type type) { return description(type).file_inputs; }

int64_t row_bytes(Type type, int64_t columns) {
  const Description d = description(type);
  return columns / d.file_inputs * d.file_bytes;
}

int64_t panel_bytes(Type type, int64_t columns) {
  const Description d = description(type);
  if (columns % d.file_inputs != 0 || (d.codes && columns > kMaxColumns))
    throw std::runtime_error("a matrix of ggml type " + std::to_string(static_cast<int>(type)) + " has " +
                             std::to_string(columns) + " columns; expected a multiple of " +
                             std::to_string(d.file_inputs) + " up to " + std::to_string(kMaxColumns));
  return packed_panel_bytes(d, columns);
}

int64_t packed_panel_bytes(const Description& d, int64_t columns) {
  const int64_t n = blocks(columns, d.inputs);
  return blocks(n * d.front, 64) * 64 + n * d.bytes;
}

void pack(Type type, const uint8_t* source, int64_t rows, int64_t columns, int64_t panel_begin, int64_t panel_end,
          uint8_t* packed) {
  const int64_t from = row_bytes(type, columns), to = panel_bytes(type, columns);
  const std::vector<uint8_t> zeros(static_cast<size_t>(from), 0);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* at[kPanel];
    for (int64_t r = 0; r < kPanel; ++r)
      at[r] = p * kPanel + r < rows ? source + (p * kPanel + r) * from : zeros.data();
    kernels().pack_panel(type, at, columns, packed + p * to);
  }
}

void set_codebook(Type type, const int8_t* values, int64_t entries, int64_t width) {
  static std::vector<int8_t> kept[64];
  std::vector<int8_t>& mine = kept[static_cast<int>(codebook_of(type))];
  if (!mine.empty()) return;
  mine.assign(values, values + entries * width);
  codebooks[static_cast<int>(codebook_of(type))] = mine.data();
  shuffles[static_cast<int>(codebook_of(type))] = make_shuffles(values, entries, width);
}

}  // namespace mill::linear
