// Codebook types: IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S. 256 inputs, d [16] f16 in front (32 B a block).
// For each 32 inputs ("group" below) a code names 8 inputs (IQ1, IQ2) or 4 (IQ3) of a codebook, looked up by gather:
// four bytes of 16 rows at once are a line.
//
//   indexes  [8 groups][4 or 8 codes][16 rows] low bytes      signs  [8 groups][8 lines] 64 bits, bit 4 r + b: negative
//   IQ2_XXS  | scales S | 8 x (indexes 64 B, signs 64 B) |                                             1088 B
//   IQ2_XS   | scale bytes [8 groups][16] | high bits H1 64 B | 8 x (64 B, signs 64 B) |               1216 B
//   IQ2_S    | scale bytes [8][16] | high bits [8][16] bytes, 2 a code | 8 x (64 B, signs 64 B) |      1280 B
//   IQ3_XXS  | scales S | 8 x (indexes 128 B, signs 64 B) |                                            1600 B
//   IQ3_S    | scales S | high bits [8][16] bytes, 1 a code | 8 x (128 B, signs 64 B) |                1728 B
//   IQ1_S    | words [8 groups][16]: 4 x 3 high bits, 3 bits of scale, sign of delta | 8 x 64 B |       768 B
//   IQ1_M    | scale words [4][16]: 4 x 3 bits | words [8][16]: 4 x (3 high bits, sign of delta) | 8 x 64 B | 896 B
//
//   S: [4][16] bytes, low nibble the scale of group 2 k, high 2 k + 1. H1: [4][16] bytes, bits 0-3 the codes of group
//   2 k, 4-7 of 2 k + 1.
//   The files keep 7 signs of 8 in some types (the eighth makes their number even); here all 8 are kept: + 1/8 bit.
//   IQ1's values -1, 0, 1 have a delta of +-1/8, so codes are 8 v +- 1 (its codebook is handed over times 8).
#pragma once
#include "linear/formats/lines.h"

namespace mill::TM_ISA::linear {

TM_INLINE unsigned load_u16(const uint8_t* p) { return p[0] | p[1] << 8; }
TM_INLINE unsigned eight_signs(unsigned seven) {
  return seven | static_cast<unsigned>(__builtin_parity(seven)) << 7;
}

inline void put_signs(unsigned eight, int c, int row, uint8_t* at) {  // of inputs 8 c .. 8 c + 7: lines 2 c and 2 c + 1
  for (int h = 0; h < 2; ++h) {
    uint8_t& byte = at[8 * (2 * c + h) + row / 2];
    byte = static_cast<uint8_t>(byte | (eight >> (4 * h) & 15) << (row % 2 * 4));
  }
}

TM_INLINE Ints odd(Ints s) { return add(add(s, s), broadcast(1)); }  // scales are 2 s + 1

template <int file_bytes, int group> struct CodebookBlock {
  static constexpr int kInputs = 256, kFront = 32, kGroup = group, kFileInputs = 256, kFileBytes = file_bytes;
  static constexpr bool kMins = false, kWide = false, kWhole = true, kDear = true;
};

// d in front, times what the file's unit is of ours; scales are nibbles, [pairs of groups][16 rows] bytes.
template <int units> struct NibbleScales {
  const uint8_t *front, *block;
  TM_INLINE NibbleScales(const uint8_t* front, const uint8_t* block) : front(front), block(block) {}
  TM_INLINE Floats d() const { return mul(load_f16(front), broadcast(1.0f / units)); }
  TM_INLINE Ints whole(int k) const {
    const Ints both = load_u8_ints(block + 16 * (k / 2));
    return odd(k % 2 == 0 ? bit_and(both, broadcast(15)) : shift_right<4>(both));
  }
};

// Values with signs, + 64: `width` inputs a code, `high(j)` the codes' high bits of a group as Ints (code c at bits
// kHighBits * c), `kAt` where the groups begin.
template <class Row> struct SignedCodebook : Row {
  static constexpr int kOffset = 64, kCodes = 32 / Row::kWidth, kStep = 16 * kCodes + 64;
  static constexpr int kBytes = Row::kAt + 8 * kStep;

  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    const uint8_t *at = block + Row::kAt + j * kStep, *signs = at + 16 * kCodes;
    const int8_t* book = codebooks[static_cast<int>(Row::kType)];
    const Ints high = Row::high(block, j);
    unroll<kCodes>([&](auto c) TM_LAMBDA {
      constexpr int mask = (1 << Row::kHighBits) - 1;
      Ints index = load_u8_ints(at + 16 * c);
      if constexpr (mask != 0)
        index = add(index, shift_left<8>(bit_and(shift_right<c * Row::kHighBits>(high), broadcast(mask))));
      const auto put = [&](int t, Bytes values) TM_LAMBDA {
        use(t, add(negate(values, signs + 8 * t), broadcast_byte(64)));
      };
      if constexpr (Row::kWidth == 4) {
        put(c, gather(book, shift_left<2>(index)));
      } else {
        Bytes first, last;
        gather_pair(book, shift_left<3>(index), &first, &last);
        put(2 * c, first);
        put(2 * c + 1, last);
      }
    });
  }
};

struct IQ2_XXS_Row : CodebookBlock<66, 32> {  // file: 8 x (4 indexes, word of 4 x 7 signs and 4 bits of scale)
  static constexpr Type kType = Type::IQ2_XXS;
  static constexpr int kWidth = 8, kHighBits = 0, kAt = 64;
  using Scales = NibbleScales<8>;
  static TM_INLINE Ints high(const uint8_t*, int) { return broadcast(0); }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        const uint8_t* in = rows[r] + 2 + 8 * j;
        const uint32_t word = load_u32(in + 4);
        uint8_t *scale = out + 16 * (j / 2) + r, *at = out + kAt + 128 * j;
        *scale = static_cast<uint8_t>(*scale | word >> 28 << (j % 2 * 4));
        for (int c = 0; c < 4; ++c) {
          at[16 * c + r] = in[c];
          put_signs(eight_signs(word >> (7 * c) & 127), c, r, at + 64);
        }
      }
    }
  }
};

struct IQ2_XS_Row : CodebookBlock<74, 16> {  // file: 32 x (9 bits of index, 7 of signs), 8 bytes of scales
  static constexpr Type kType = Type::IQ2_XS;
  static constexpr int kWidth = 8, kHighBits = 1, kAt = 192;
  using Scales = NibbleScales<8>;
  static TM_INLINE Ints high(const uint8_t* block, int j) {
    const Ints both = load_u8_ints(block + 128 + 16 * (j / 2));
    return j % 2 == 0 ? both : shift_right<4>(both);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        uint8_t *bits = out + 128 + 16 * (j / 2) + r, *at = out + kAt + 128 * j;
        out[16 * j + r] = rows[r][66 + j];
        for (int c = 0; c < 4; ++c) {
          const unsigned word = load_u16(rows[r] + 2 + 2 * (4 * j + c));
          at[16 * c + r] = static_cast<uint8_t>(word);
          *bits = static_cast<uint8_t>(*bits | (word >> 8 & 1) << (j % 2 * 4 + c));
          put_signs(eight_signs(word >> 9), c, r, at + 64);
        }
      }
    }
  }
};

struct IQ2_S_Row : CodebookBlock<82, 16> {  // file: 32 low bytes of indexes, 32 of signs, 8 of high bits, 8 of scales
  static constexpr Type kType = Type::IQ2_S;
  static constexpr int kWidth = 8, kHighBits = 2, kAt = 256;
  using Scales = NibbleScales<8>;
  static TM_INLINE Ints high(const uint8_t* block, int j) { return load_u8_ints(block + 128 + 16 * j); }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t* in = rows[r] + 2;
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        uint8_t* at = out + kAt + 128 * j;
        out[16 * j + r] = in[72 + j];
        out[128 + 16 * j + r] = in[64 + j];
        for (int c = 0; c < 4; ++c) {
          at[16 * c + r] = in[4 * j + c];
          put_signs(in[32 + 4 * j + c], c, r, at + 64);
        }
      }
    }
  }
};

struct IQ3_XXS_Row : CodebookBlock<98, 32> {  // file: 64 indexes, 8 words of 4 x 7 signs and 4 bits of scale
  static constexpr Type kType = Type::IQ3_XXS;
  static constexpr int kWidth = 4, kHighBits = 0, kAt = 64;
  using Scales = NibbleScales<4>;
  static TM_INLINE Ints high(const uint8_t*, int) { return broadcast(0); }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        const uint32_t word = load_u32(rows[r] + 66 + 4 * j);
        uint8_t *scale = out + 16 * (j / 2) + r, *at = out + kAt + 192 * j;
        *scale = static_cast<uint8_t>(*scale | word >> 28 << (j % 2 * 4));
        for (int c = 0; c < 8; ++c) at[16 * c + r] = rows[r][2 + 8 * j + c];
        for (int c = 0; c < 4; ++c) put_signs(eight_signs(word >> (7 * c) & 127), c, r, at + 128);
      }
    }
  }
};

struct IQ3_S_Row : CodebookBlock<110, 32> {  // file: 64 low bytes of indexes, 8 of high bits, 32 of signs, 4 of scales
  static constexpr Type kType = Type::IQ3_S;
  static constexpr int kWidth = 4, kHighBits = 1, kAt = 192;
  using Scales = NibbleScales<1>;
  static TM_INLINE Ints high(const uint8_t* block, int j) { return load_u8_ints(block + 64 + 16 * j); }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t* in = rows[r] + 2;
      put_half(rows[r], r, front);
      for (int k = 0; k < 4; ++k) out[16 * k + r] = in[104 + k];
      for (int j = 0; j < 8; ++j) {
        uint8_t* at = out + kAt + 192 * j;
        out[64 + 16 * j + r] = in[64 + j];
        for (int c = 0; c < 8; ++c) at[16 * c + r] = in[8 * j + c];
        for (int c = 0; c < 4; ++c) put_signs(in[72 + 4 * j + c], c, r, at + 128);
      }
    }
  }
};

// ---- IQ1 ----

// Codes 8 v + 1 or 8 v - 1, + 9, for 16 rows: `negative` has ones in the rows whose delta is negative, else 0.
TM_INLINE Bytes delta_bytes(Ints negative) {
  return as_bytes(sub(broadcast(0x0A0A0A0A), bit_and(negative, broadcast(0x02020202))));
}

template <class Use>
TM_INLINE void ternary_lines(const uint8_t* indexes, const Ints* high, const Bytes* delta, Use use) {
  const int8_t* book = codebooks[static_cast<int>(Type::IQ1_S)];
  unroll<4>([&](auto c) TM_LAMBDA {
    const Ints index = add(load_u8_ints(indexes + 16 * c), shift_left<8>(bit_and(high[c], broadcast(7))));
    Bytes first, last;
    gather_pair(book, shift_left<3>(index), &first, &last);
    use(2 * c, add(first, delta[c]));
    use(2 * c + 1, add(last, delta[c]));
  });
}

struct IQ1_S : CodebookBlock<50, 32> {  // file: 32 low bytes of indexes, 8 words
  static constexpr int kOffset = 9, kBytes = 768;
  struct Scales : NibbleScales<8> {
    using NibbleScales<8>::NibbleScales;
    TM_INLINE Ints whole(int k) const {
      return odd(bit_and(shift_right<12>(load_u16_ints(block + 32 * k)), broadcast(7)));
    }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    const Ints word = load_u16_ints(block + 32 * j);
    const Bytes delta = delta_bytes(sub(broadcast(0), shift_right<15>(word)));
    const Ints high[4] = {word, shift_right<3>(word), shift_right<6>(word), shift_right<9>(word)};
    const Bytes deltas[4] = {delta, delta, delta, delta};
    ternary_lines(block + 256 + 64 * j, high, deltas, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) std::memcpy(out + 32 * j + 2 * r, rows[r] + 34 + 2 * j, 2);
      for (int i = 0; i < 32; ++i) out[256 + 16 * i + r] = rows[r][2 + i];
    }
  }
};

// file: 32 low bytes, 16 bytes of 2 x 4 bits, 4 scale words with d's nibbles on top
struct IQ1_M : CodebookBlock<56, 16> {
  static constexpr int kOffset = 9, kBytes = 896;
  struct Scales : NibbleScales<8> {
    using NibbleScales<8>::NibbleScales;
    TM_INLINE Ints whole(int k) const {
      const Ints word = load_u16_ints(block + 32 * (k / 4));
      return odd(bit_and(shift_right(word, 3 * (k % 4)), broadcast(7)));
    }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    const Ints word = load_u16_ints(block + 128 + 32 * j);
    Ints high[4];
    Bytes deltas[4];
    unroll<4>([&](auto c) TM_LAMBDA {
      high[c] = shift_right<4 * c>(word);
      deltas[c] = delta_bytes(sub(broadcast(0), bit_and(shift_right<4 * c + 3>(word), broadcast(1))));
    });
    ternary_lines(block + 384 + 64 * j, high, deltas, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t* in = rows[r];
      uint16_t d = 0;
      for (int k = 0; k < 4; ++k) {
        std::memcpy(out + 32 * k + 2 * r, in + 48 + 2 * k, 2);
        d = static_cast<uint16_t>(d | (in[49 + 2 * k] >> 4) << (4 * k));
      }
      std::memcpy(front + 2 * r, &d, 2);
      for (int j = 0; j < 8; ++j) std::memcpy(out + 128 + 32 * j + 2 * r, in + 32 + 2 * j, 2);
      for (int i = 0; i < 32; ++i) out[384 + 16 * i + r] = in[i];
    }
  }
};

}  // namespace mill::TM_ISA::linear
