// Codebook types: IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S. 256 inputs, d [16] f16 in front (32 B a block).
// For each 32 inputs ("group" below) a code names 8 inputs (IQ1, IQ2) or 4 (IQ3) of a codebook. Many tokens look them up
// by gather, four bytes of 16 rows at once being a line; few tokens by byte shuffles where there are any.
//
//   IQ2_XXS  | scales S | 8 x (indexes I, signs G) |                                                    1088 B
//   IQ2_XS   | scale bytes [8 groups][16] | high bits [8] x B | 8 x (I, G) |                            1216 B
//   IQ2_S    | scale bytes [8][16] | high bits [8] x (B of bit 8, B of bit 9) | 8 x (I, G) |            1280 B
//   IQ3_XXS  | scales S | 8 x (I of codes 0..3, I of 4..7, G) |                                         1600 B
//   IQ3_S    | scales S | high bits [8] x (B of 0..3, B of 4..7) | 8 x (I, I, G) |                      1728 B
//   IQ1_S    | words [8 groups][16]: 4 x 3 high bits, 3 bits of scale, sign of delta | 8 x 64 B |       768 B
//   IQ1_M    | scale words [4][16]: 4 x 3 bits | words [8][16]: 4 x (3 high bits, sign of delta) | 8 x 64 B | 896 B
//
//   I: low bytes, [16 rows][4 codes]. B: a bit of them, 64 bits in the same order. G: [16 rows][4] bytes, of IQ2 the signs
//   of code c's 8 inputs; of IQ3 low nibbles those of codes 0..3, high ones of 4..7. IQ1: [4 codes][16 rows] low bytes.
//   S: [4][16] bytes, low nibble the scale of group 2 k, high 2 k + 1.
//   The files keep 7 signs of 8 in some types (the eighth makes their number even); here all 8 are kept: + 1/8 bit.
//   IQ1's values -1, 0, 1 have a delta of +-1/8, so codes are 8 v +- 1 (its codebook is handed over times 8).
#pragma once
#include "linear/formats/lines.h"
#include "linear/shuffles.h"
#include "simd/codebooks.h"

namespace mill::TM_ISA::linear {

TM_INLINE unsigned load_u16(const uint8_t* p) { return p[0] | p[1] << 8; }
TM_INLINE unsigned eight_signs(unsigned seven) {
  return seven | static_cast<unsigned>(__builtin_parity(seven)) << 7;
}

inline void put_index(unsigned index, int c, int row, uint8_t* at) {
  at[64 * (c / 4) + 4 * row + c % 4] = static_cast<uint8_t>(index);
}
inline void put_high(unsigned bit, int c, int row, uint8_t* at) {
  uint8_t& byte = at[row / 2];
  byte = static_cast<uint8_t>(byte | (bit & 1) << (row % 2 * 4 + c % 4));
}
template <int width> void put_signs(unsigned eight, int c, int row, uint8_t* at) {  // of inputs 8 c .. 8 c + 7
  if constexpr (width == 8) {
    at[4 * row + c] = static_cast<uint8_t>(eight);
  } else {
    for (int k = 2 * c; k < 2 * c + 2; ++k) {
      uint8_t& byte = at[4 * row + k % 4];
      byte = static_cast<uint8_t>(byte | (eight >> (k % 2 * 4) & 15) << (k / 4 * 4));
    }
  }
}

template <int file_bytes, int group> struct CodebookBlock {
  static constexpr int kInputs = 256, kFront = 32, kGroup = group, kFileInputs = 256, kFileBytes = file_bytes;
  static constexpr bool kMins = false, kWide = false, kWhole = true;
};

// d in front, times what the file's unit is of ours; scales are nibbles, [pairs of groups][16 rows] bytes.
template <int units> struct NibbleScales {
  const uint8_t *front, *block;
  TM_INLINE NibbleScales(const uint8_t* front, const uint8_t* block) : front(front), block(block) {}
  TM_INLINE Floats d() const { return mul(load_f16(front), broadcast(1.0f / units)); }
  TM_INLINE Floats float_whole(int k) const {  // 2 s + 1
    const Ints both = load_u8_ints(block + 16 * (k / 2));
    return odd_of_four(k % 2 == 0 ? both : shift_right<4>(both));
  }
};

// Values with signs, + 64: kWidth inputs a code; kHighBits of an index above its byte, from kHighAt on; kAt where the
// groups begin.
template <class Row> struct SignedCodebook : Row {
  static constexpr int kOffset = 64, kVectors = 8 / Row::kWidth, kStep = 64 * kVectors + 64;
  static constexpr int kBytes = Row::kAt + 8 * kStep, kShuffledWidth = Row::kWidth;

  static TM_INLINE const uint8_t* high(const uint8_t* block, int j) {
    return block + Row::kHighAt + 8 * j * kVectors * Row::kHighBits;
  }

  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    const uint8_t* at = block + Row::kAt + j * kStep;
    const int8_t* book = codebooks[static_cast<int>(Row::kType)];
    const Bytes signs = load_bytes(at + 64 * kVectors);
    unroll<kVectors>([&](auto v) TM_LAMBDA {
      const Ints indexes = load_ints(at + 64 * v);
      Ints bits[2] = {};
      for (int h = 0; h < Row::kHighBits; ++h) bits[h] = nibbles(high(block, j) + 8 * (v * Row::kHighBits + h));
      unroll<4>([&](auto c) TM_LAMBDA {
        Ints index = bit_and(shift_right<8 * c>(indexes), broadcast(255));
        for (int h = 0; h < Row::kHighBits; ++h)
          index = add(index, mul(bit_and(shift_right<c>(bits[h]), broadcast(1)), broadcast(256 << h)));
        const Bytes plus = broadcast_byte(64);
        if constexpr (Row::kWidth == 4) {
          use(4 * v + c, add(negate<c, v>(gather(book, shift_left<2>(index)), signs), plus));
        } else {
          Bytes first, last;
          gather_pair(book, shift_left<3>(index), &first, &last);
          use(2 * c, add(negate<c, 0>(first, signs), plus));
          use(2 * c + 1, add(negate<c, 1>(last, signs), plus));
        }
      });
    });
  }

#if defined(__AVX512F__)
  // The same values in the order of shuffle_codes, a line for each value of the codes.
  template <class Use> static TM_INLINE void shuffled(const uint8_t* block, int j, Use use) {
    const uint8_t* at = block + Row::kAt + j * kStep;
    const uint8_t* tables = shuffles[static_cast<int>(Row::kType)];
    const Bytes signs = load_bytes(at + 64 * kVectors);
    unroll<kVectors>([&](auto v) TM_LAMBDA {
      shuffled_values<Row::kWidth, 256 << Row::kHighBits, v>(
          tables, load_bytes(at + 64 * v), high(block, j) + 8 * v * Row::kHighBits, signs,
          [&](int p, Bytes value) TM_LAMBDA { use(4 * v + p, value); });
    });
  }
#endif
};

struct IQ2_XXS_Row : CodebookBlock<66, 32> {  // file: 8 x (4 indexes, word of 4 x 7 signs and 4 bits of scale)
  static constexpr Type kType = Type::IQ2_XXS;
  static constexpr int kWidth = 8, kHighBits = 0, kHighAt = 0, kAt = 64;
  using Scales = NibbleScales<8>;
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        const uint8_t* in = rows[r] + 2 + 8 * j;
        const uint32_t word = load_u32(in + 4);
        uint8_t *scale = out + 16 * (j / 2) + r, *at = out + kAt + 128 * j;
        *scale = static_cast<uint8_t>(*scale | word >> 28 << (j % 2 * 4));
        for (int c = 0; c < 4; ++c) {
          put_index(in[c], c, r, at);
          put_signs<8>(eight_signs(word >> (7 * c) & 127), c, r, at + 64);
        }
      }
    }
  }
};

struct IQ2_XS_Row : CodebookBlock<74, 16> {  // file: 32 x (9 bits of index, 7 of signs), 8 bytes of scales
  static constexpr Type kType = Type::IQ2_XS;
  static constexpr int kWidth = 8, kHighBits = 1, kHighAt = 128, kAt = 192;
  using Scales = NibbleScales<8>;
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        uint8_t* at = out + kAt + 128 * j;
        out[16 * j + r] = rows[r][66 + j];
        for (int c = 0; c < 4; ++c) {
          const unsigned word = load_u16(rows[r] + 2 + 2 * (4 * j + c));
          put_index(word & 255, c, r, at);
          put_high(word >> 8, c, r, out + kHighAt + 8 * j);
          put_signs<8>(eight_signs(word >> 9), c, r, at + 64);
        }
      }
    }
  }
};

struct IQ2_S_Row : CodebookBlock<82, 16> {  // file: 32 low bytes of indexes, 32 of signs, 8 of high bits, 8 of scales
  static constexpr Type kType = Type::IQ2_S;
  static constexpr int kWidth = 8, kHighBits = 2, kHighAt = 128, kAt = 256;
  using Scales = NibbleScales<8>;
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t* in = rows[r] + 2;
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        uint8_t* at = out + kAt + 128 * j;
        out[16 * j + r] = in[72 + j];
        for (int c = 0; c < 4; ++c) {
          put_index(in[4 * j + c], c, r, at);
          for (int h = 0; h < 2; ++h) put_high(in[64 + j] >> (2 * c + h), c, r, out + kHighAt + 8 * (2 * j + h));
          put_signs<8>(in[32 + 4 * j + c], c, r, at + 64);
        }
      }
    }
  }
};

struct IQ3_XXS_Row : CodebookBlock<98, 32> {  // file: 64 indexes, 8 words of 4 x 7 signs and 4 bits of scale
  static constexpr Type kType = Type::IQ3_XXS;
  static constexpr int kWidth = 4, kHighBits = 0, kHighAt = 0, kAt = 64;
  using Scales = NibbleScales<4>;
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, front);
      for (int j = 0; j < 8; ++j) {
        const uint32_t word = load_u32(rows[r] + 66 + 4 * j);
        uint8_t *scale = out + 16 * (j / 2) + r, *at = out + kAt + 192 * j;
        *scale = static_cast<uint8_t>(*scale | word >> 28 << (j % 2 * 4));
        for (int c = 0; c < 8; ++c) put_index(rows[r][2 + 8 * j + c], c, r, at);
        for (int c = 0; c < 4; ++c) put_signs<4>(eight_signs(word >> (7 * c) & 127), c, r, at + 128);
      }
    }
  }
};

struct IQ3_S_Row : CodebookBlock<110, 32> {  // file: 64 low bytes of indexes, 8 of high bits, 32 of signs, 4 of scales
  static constexpr Type kType = Type::IQ3_S;
  static constexpr int kWidth = 4, kHighBits = 1, kHighAt = 64, kAt = 192;
  using Scales = NibbleScales<1>;
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t* in = rows[r] + 2;
      put_half(rows[r], r, front);
      for (int k = 0; k < 4; ++k) out[16 * k + r] = in[104 + k];
      for (int j = 0; j < 8; ++j) {
        uint8_t* at = out + kAt + 192 * j;
        for (int c = 0; c < 8; ++c) {
          put_index(in[8 * j + c], c, r, at);
          put_high(in[64 + j] >> c, c, r, out + kHighAt + 8 * (2 * j + c / 4));
        }
        for (int c = 0; c < 4; ++c) put_signs<4>(in[72 + 4 * j + c], c, r, at + 128);
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

#if defined(__AVX512F__)
// Halves of codes + 9 for 16 rows, lines 2 c and 2 c + 1, from a table of nibbles (linear/shuffles.h); the index of code c
// has three high bits from bit `at` of `high` on. `plus`: ones in the nibbles of rows whose delta is positive.
template <int c, int at, class Use>
TM_INLINE void halved_lines(const uint8_t* indexes, Ints high, Bytes plus, Use use) {
  const uint8_t* table = shuffles[static_cast<int>(Type::IQ1_S)];
  const Bytes both = add(words_at<at>(table, indexes + 16 * c, high), plus);
  use(2 * c, bit_and(both, broadcast_byte(15)));
  use(2 * c + 1, bit_and(shift_right<4>(both), broadcast_byte(15)));
}
TM_INLINE Bytes plus_nibbles(Ints negative) {  // 0 or 1
  return bit_and(as_bytes(sub(negative, broadcast(1))), broadcast_byte(0x11));
}
#endif

struct IQ1_S : CodebookBlock<50, 32> {  // file: 32 low bytes of indexes, 8 words
  static constexpr int kOffset = 9, kBytes = 768;
  static constexpr bool kHalved = true;
  struct Scales : NibbleScales<8> {
    using NibbleScales<8>::NibbleScales;
    TM_INLINE Floats float_whole(int k) const { return odd_of_three(shift_right<12>(load_u16_ints(block + 32 * k))); }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    const Ints word = load_u16_ints(block + 32 * j);
    const Bytes delta = delta_bytes(sub(broadcast(0), shift_right<15>(word)));
    const Ints high[4] = {word, shift_right<3>(word), shift_right<6>(word), shift_right<9>(word)};
    const Bytes deltas[4] = {delta, delta, delta, delta};
    ternary_lines(block + 256 + 64 * j, high, deltas, use);
  }
#if defined(__AVX512F__)
  template <class Use> static TM_INLINE void halves(const uint8_t* block, int j, Use use) {
    const Ints word = load_u16_ints(block + 32 * j);
    const Bytes plus = plus_nibbles(shift_right<15>(word));
    unroll<4>([&](auto c) TM_LAMBDA { halved_lines<c, 3 * c>(block + 256 + 64 * j, word, plus, use); });
  }
#endif
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
  static constexpr bool kHalved = true;
  struct Scales : NibbleScales<8> {
    using NibbleScales<8>::NibbleScales;
    TM_INLINE Floats float_whole(int k) const {
      return odd_of_three(shift_right(load_u16_ints(block + 32 * (k / 4)), 3 * (k % 4)));
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
#if defined(__AVX512F__)
  template <class Use> static TM_INLINE void halves(const uint8_t* block, int j, Use use) {
    const Ints word = load_u16_ints(block + 128 + 32 * j);
    unroll<4>([&](auto c) TM_LAMBDA {
      const Bytes plus = plus_nibbles(bit_and(shift_right<4 * c + 3>(word), broadcast(1)));
      halved_lines<c, 4 * c>(block + 384 + 64 * j, word, plus, use);
    });
  }
#endif
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
