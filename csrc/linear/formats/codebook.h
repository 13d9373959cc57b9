// Codebook types: IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S. The rows' own bytes, one row after the other:
// looking up 16 rows is scalar work on any set, so nothing is gained by interleaving.
//
//   256 inputs, front: f16 d [16] 32 B | 16 x the file's block without its d (IQ1_M: whole, its d lies scattered) |
//
// A type gives, for 32 inputs of a row, codes (8 bytes at a time, offset added) and the odd scale of each group.
#pragma once
#include "linear/format.h"

namespace mill::TM_ISA::linear {

inline constexpr uint64_t kOnes = 0x0101010101010101u;

TM_INLINE uint64_t load_u64(const void* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}
TM_INLINE unsigned load_u16(const uint8_t* p) { return p[0] | p[1] << 8; }
TM_INLINE uint32_t load_u32(const uint8_t* p) { return static_cast<uint32_t>(load_i32(p)); }

// Bit i of `signs` to all bits of byte i.
TM_INLINE uint64_t spread(unsigned signs) {
  const uint64_t bit = (signs * kOnes) & 0x8040201008040201u;  // bit i of byte i
  const uint64_t one = ((bit + 0x7f7f7f7f7f7f7f7fu) | bit) >> 7 & kOnes;
  return (one << 8) - one;
}
TM_INLINE unsigned eight_signs(unsigned seven) {  // the eighth makes their number even
  return seven | static_cast<unsigned>(__builtin_parity(seven)) << 7;
}
// Eight values 1 .. 62 with signs, + 64: a negative one is 11xxxxxx, a positive one 00xxxxxx.
TM_INLINE uint64_t signed_codes(uint64_t values, unsigned signs) {
  const uint64_t mask = spread(signs);
  return (((values ^ mask) + (mask & kOnes)) ^ 0x40 * kOnes) & 0x7f * kOnes;
}
TM_INLINE uint64_t entry8(const int8_t* book, unsigned i) { return load_u64(book + 8 * i); }
TM_INLINE uint64_t entry4(const int8_t* book, unsigned i, unsigned next) {
  return static_cast<uint32_t>(load_i32(book + 4 * i)) | static_cast<uint64_t>(static_cast<uint32_t>(load_i32(book + 4 * next))) << 32;
}

// `Row` reads one row: odd(row, g) is the scale of a group in units of d * kUnit, eight(book, row, i) the codes of
// inputs 8 i .. 8 i + 7 with their offset, half(block) the f16 d of a block in the file.
struct LeadingHalf {
  static constexpr int kSkip = 2;  // bytes in front of a row's bytes here
  static unsigned half(const uint8_t* block) { return load_u16(block); }
};
template <class Row> struct Codebook : Row {
  static constexpr int kInputs = 256, kFileInputs = 256, kFront = 32;
  static constexpr int kRow = Row::kFileBytes - Row::kSkip, kBytes = 16 * kRow;
  static constexpr bool kMins = false, kWide = false;

  static void scales(const uint8_t* front, const uint8_t* block, float* scale, float*) {
    alignas(64) float d[16];
    store(d, load_f16(front));
    for (int g = 0; g < 256 / Row::kGroup; ++g)
      for (int r = 0; r < 16; ++r)
        scale[16 * g + r] = d[r] * (static_cast<float>(Row::odd(block + kRow * r, g)) * Row::kUnit);
  }
  template <class Use> static void lines(const uint8_t* block, int j, Use use) {
    alignas(64) uint8_t line[8 * 64];
    const int8_t* book = codebooks[static_cast<int>(Row::kType)];
    for (int r = 0; r < 16; ++r)
      for (int i = 0; i < 4; ++i) {
        const uint64_t eight = Row::eight(book, block + kRow * r, 4 * j + i);
        const uint32_t low = static_cast<uint32_t>(eight), high = static_cast<uint32_t>(eight >> 32);
        std::memcpy(line + 128 * i + 4 * r, &low, 4);
        std::memcpy(line + 128 * i + 64 + 4 * r, &high, 4);
      }
    for (int t = 0; t < 8; ++t) use(t, load_bytes(line + 64 * t));
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const auto d = static_cast<uint16_t>(Row::half(rows[r]));
      std::memcpy(front + 2 * r, &d, 2);
      std::memcpy(out + kRow * r, rows[r] + Row::kSkip, kRow);
    }
  }
};

struct IQ2_XXS_Row : LeadingHalf {  // 8 x (4 indexes, word of 4 x 7 signs and 4 bits of scale)
  static constexpr Type kType = Type::IQ2_XXS;
  static constexpr int kFileBytes = 66, kGroup = 32, kOffset = 64;
  static constexpr float kUnit = 0.125f;
  static TM_INLINE unsigned odd(const uint8_t* row, int g) { return 2 * (row[8 * g + 7] >> 4) + 1; }
  static TM_INLINE uint64_t eight(const int8_t* book, const uint8_t* row, int i) {
    const uint8_t* at = row + 8 * (i / 4);
    return signed_codes(entry8(book, at[i % 4]), eight_signs(load_u32(at + 4) >> (7 * (i % 4)) & 127));
  }
};

struct IQ2_XS_Row : LeadingHalf {  // 32 x (9 bits of index, 7 of signs), 8 bytes of scales
  static constexpr Type kType = Type::IQ2_XS;
  static constexpr int kFileBytes = 74, kGroup = 16, kOffset = 64;
  static constexpr float kUnit = 0.125f;
  static TM_INLINE unsigned odd(const uint8_t* row, int g) { return 2 * (row[64 + g / 2] >> (g % 2 * 4) & 15u) + 1; }
  static TM_INLINE uint64_t eight(const int8_t* book, const uint8_t* row, int i) {
    const unsigned word = load_u16(row + 2 * i);
    return signed_codes(entry8(book, word & 511), eight_signs(word >> 9));
  }
};

struct IQ2_S_Row : LeadingHalf {  // 32 low bytes of indexes, 32 of signs, 8 of high bits, 8 of scales
  static constexpr Type kType = Type::IQ2_S;
  static constexpr int kFileBytes = 82, kGroup = 16, kOffset = 64;
  static constexpr float kUnit = 0.125f;
  static TM_INLINE unsigned odd(const uint8_t* row, int g) { return 2 * (row[72 + g / 2] >> (g % 2 * 4) & 15u) + 1; }
  static TM_INLINE uint64_t eight(const int8_t* book, const uint8_t* row, int i) {
    const unsigned high = row[64 + i / 4] >> (i % 4 * 2) & 3u;
    return signed_codes(entry8(book, row[i] | high << 8), row[32 + i]);
  }
};

struct IQ3_XXS_Row : LeadingHalf {  // 64 indexes, 8 words of 4 x 7 signs and 4 bits of scale
  static constexpr Type kType = Type::IQ3_XXS;
  static constexpr int kFileBytes = 98, kGroup = 32, kOffset = 64;
  static constexpr float kUnit = 0.25f;
  static TM_INLINE unsigned odd(const uint8_t* row, int g) { return 2 * (row[64 + 4 * g + 3] >> 4) + 1; }
  static TM_INLINE uint64_t eight(const int8_t* book, const uint8_t* row, int i) {
    const uint32_t word = load_u32(row + 64 + i / 4 * 4);
    return signed_codes(entry4(book, row[2 * i], row[2 * i + 1]), eight_signs(word >> (7 * (i % 4)) & 127));
  }
};

struct IQ3_S_Row : LeadingHalf {  // 64 low bytes of indexes, 8 of high bits, 32 of signs, 4 of scales
  static constexpr Type kType = Type::IQ3_S;
  static constexpr int kFileBytes = 110, kGroup = 32, kOffset = 64;
  static constexpr float kUnit = 1.0f;
  static TM_INLINE unsigned odd(const uint8_t* row, int g) { return 2 * (row[104 + g / 2] >> (g % 2 * 4) & 15u) + 1; }
  static TM_INLINE uint64_t eight(const int8_t* book, const uint8_t* row, int i) {
    const unsigned high = row[64 + i / 4] >> (i % 4 * 2);
    return signed_codes(entry4(book, row[2 * i] | (high & 1) << 8, row[2 * i + 1] | (high & 2) << 7), row[72 + i]);
  }
};

// IQ1: values -1, 0, 1 and a delta of 1/8, so the codes are 8 v + 1 or 8 v - 1 and the scale is d * odd / 8.
TM_INLINE uint64_t ternary_codes(const int8_t* book, unsigned i, bool negative) {
  const uint64_t third = (entry8(book, i) & 0x7f * kOnes) + kOnes;  // v + 1 in bits 0-1: -1 is 0x7f, + 1 = 0x80
  return ((third & 3 * kOnes) << 3) + (negative ? 0 : 2) * kOnes;   // 8 v + 8 +- 1, + 1: offset 9
}

struct IQ1_S_Row : LeadingHalf {  // 32 low bytes of indexes, 8 words: 4 x 3 high bits, 3 bits of scale, sign of delta
  static constexpr Type kType = Type::IQ1_S;
  static constexpr int kFileBytes = 50, kGroup = 32, kOffset = 9;
  static constexpr float kUnit = 0.125f;
  static TM_INLINE unsigned odd(const uint8_t* row, int g) { return 2 * (row[33 + 2 * g] >> 4 & 7u) + 1; }
  static TM_INLINE uint64_t eight(const int8_t* book, const uint8_t* row, int i) {
    const unsigned word = load_u16(row + 32 + i / 4 * 2);
    return ternary_codes(book, row[i] | (word >> (3 * (i % 4)) & 7) << 8, word >> 15);
  }
};

struct IQ1_M_Row {  // 32 low bytes of indexes, 16 bytes of 2 x (3 high bits, sign of delta), 4 words of 4 x 3 bits of scale
  static constexpr Type kType = Type::IQ1_S;  // the same codebook
  static constexpr int kFileBytes = 56, kGroup = 16, kOffset = 9, kSkip = 0;
  static constexpr float kUnit = 0.125f;
  static unsigned half(const uint8_t* block) {  // the top nibbles of the four scale words
    unsigned d = 0;
    for (int i = 0; i < 4; ++i) d |= static_cast<unsigned>(block[49 + 2 * i] >> 4) << (4 * i);
    return d;
  }
  static TM_INLINE unsigned odd(const uint8_t* row, int g) {
    return 2 * (load_u16(row + 48 + g / 4 * 2) >> (3 * (g % 4)) & 7) + 1;
  }
  static TM_INLINE uint64_t eight(const int8_t* book, const uint8_t* row, int i) {
    const unsigned high = row[32 + i / 2] >> (i % 2 * 4);
    return ternary_codes(book, row[i] | (high & 7) << 8, high & 8);
  }
};

}  // namespace mill::TM_ISA::linear
