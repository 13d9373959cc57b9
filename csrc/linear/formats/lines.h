// Writing codes into the lines of a panel: shared by the formats. `codes` are 32 unsigned codes of one row.
// Line byte 4 * row + b of line t belongs to input 4 t + b, so four neighbours are read and written at once.
#pragma once
#include "linear/format.h"

namespace mill::TM_ISA::linear {

TM_INLINE uint32_t load_u32(const uint8_t* p) { return static_cast<uint32_t>(load_i32(p)); }
TM_INLINE void store_u32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

// To 32 codes, from bit `to` on, what 32 bytes of the file have from bit `from` on; `mask`: as many bits.
TM_INLINE void add_bits(const uint8_t* bytes, int from, uint32_t mask, int to, uint8_t* codes) {
  for (int k = 0; k < 32; k += 4)
    store_u32(codes + k, load_u32(codes + k) | (load_u32(bytes + k) >> from & mask * 0x01010101) << to);
}

TM_INLINE void put_nibbles(const uint8_t* codes, int row, uint8_t* at) {  // 4 lines: low = inputs 0..15, high = 16..31
  for (int t = 0; t < 4; ++t)
    store_u32(at + 64 * t + 4 * row,
              (load_u32(codes + 4 * t) & 0x0f0f0f0f) | (load_u32(codes + 16 + 4 * t) & 0x0f0f0f0f) << 4);
}

// 2 lines: bits 0-1, 2-3 of the h-th are lines 2 h and 2 h + 1, bits 4-5, 6-7 lines 4 + 2 h and 5 + 2 h.
TM_INLINE void put_pairs(const uint8_t* codes, int row, uint8_t* at) {
  for (int h = 0; h < 2; ++h) {
    uint32_t v = 0;
    for (int f = 0; f < 4; ++f) v |= (load_u32(codes + 8 * h + 16 * (f / 2) + 4 * (f % 2)) & 0x03030303) << (2 * f);
    store_u32(at + 64 * h + 4 * row, v);
  }
}

// 5 lines of 8 codes of five bits: line i has the i-th of the 8 in its low bits; the 15 bits above are the last three,
// bits 4..2 of which lie in the top bits of lines 0, 2, 4, bits 1..0 in bits 6..5 of lines 1 and 3, and of the last one in
// bit 7 of lines 1 and 3.
TM_INLINE void put_fives(const uint8_t* codes, int row, uint8_t* at) {
  uint32_t c[8];
  for (int t = 0; t < 8; ++t) c[t] = load_u32(codes + 4 * t);
  const auto bits = [](uint32_t v, int from, uint32_t mask, int to) { return (v >> from & mask * 0x01010101) << to; };
  c[0] |= bits(c[5], 2, 7, 5);
  c[1] |= bits(c[5], 0, 3, 5) | bits(c[7], 1, 1, 7);
  c[2] |= bits(c[6], 2, 7, 5);
  c[3] |= bits(c[6], 0, 3, 5) | bits(c[7], 0, 1, 7);
  c[4] |= bits(c[7], 2, 7, 5);
  for (int t = 0; t < 5; ++t) store_u32(at + 64 * t + 4 * row, c[t]);
}

// 6 lines of 8 codes of six bits, 3 of 4 each: line i has the i-th of the 4 in its low bits and bits 2 i, 2 i + 1 of the
// last above them.
TM_INLINE void put_sixes(const uint8_t* codes, int row, uint8_t* at) {
  for (int h = 0; h < 2; ++h)
    for (int t = 0; t < 3; ++t)
      store_u32(at + 192 * h + 64 * t + 4 * row,
                load_u32(codes + 16 * h + 4 * t) | (load_u32(codes + 16 * h + 12) >> 2 * t & 0x03030303) << 6);
}

// The same of a word whose bit j is input j's.
TM_INLINE void put_word_of_bits(uint32_t word, int row, uint8_t* at) {
  for (int b = 0; b < 4; ++b) {  // bits b, b + 4, b + 8, ... close up, in pairs, fours and eights
    uint32_t v = word >> b & 0x11111111;
    v = (v | v >> 3) & 0x03030303;
    v = (v | v >> 6) & 0x000f000f;
    at[4 * row + b] = static_cast<uint8_t>(v | v >> 12);
  }
}

inline void put_words(const uint8_t* words, int n, int row, uint8_t* line) {  // n words of 4 bytes, one for each line
  for (int t = 0; t < n; ++t) std::memcpy(line + 64 * t + 4 * row, words + 4 * t, 4);
}

inline void put_half(const uint8_t* f16, int row, uint8_t* at) { std::memcpy(at + 2 * row, f16, 2); }

// ---- and reading them back as lines ----

// `high`: lines 4..7 times 16, which needs no shift.
template <bool high = false, class Use> TM_INLINE void nibble_lines(const uint8_t* at, Use use) {
  const Bytes low = broadcast_byte(15), top = broadcast_byte(0xF0);
  unroll<4>([&](auto t) TM_LAMBDA {
    const Bytes raw = load_bytes(at + 64 * t);
    use(t, bit_and(raw, low));
    use(t + 4, high ? bit_and(raw, top) : bit_and(shift_right<4>(raw), low));
  });
}

template <int from, int to> TM_INLINE Bytes move_bits(Bytes a) {  // bit `from` of each byte to bit `to`: mask after
  if constexpr (from == to) return a;
  else if constexpr (from < to) return shift_left<to - from>(a);
  else return shift_right<from - to>(a);
}

// Eight lines of five bits in five. `high`: lines 5..7 times 8.
template <bool high = false, class Use> TM_INLINE void five_bit_lines(const uint8_t* at, Use use) {
  const Bytes low = broadcast_byte(31), top = broadcast_byte(0xE0), next = broadcast_byte(0x18);
  Bytes raw[5];
  unroll<5>([&](auto t) TM_LAMBDA {
    raw[t] = load_bytes(at + 64 * t);
    use(t, bit_and(raw[t], low));
  });
  const Bytes last = and_or(shift_right<4>(raw[3]), broadcast_byte(0x08), bit_and(raw[4], top));
  const Bytes eights[3] = {and_or(shift_right<2>(raw[1]), next, bit_and(raw[0], top)),
                           and_or(shift_right<2>(raw[3]), next, bit_and(raw[2], top)),
                           and_or(shift_right<3>(raw[1]), broadcast_byte(0x10), last)};
  unroll<3>([&](auto t) TM_LAMBDA { use(5 + t, high ? eights[t] : bit_and(shift_right<3>(eights[t]), low)); });
}

// Eight lines of six bits in six.
template <class Use> TM_INLINE void six_bit_lines(const uint8_t* at, Use use) {
  unroll<2>([&](auto h) TM_LAMBDA {
    Bytes raw[3];
    unroll<3>([&](auto t) TM_LAMBDA {
      raw[t] = load_bytes(at + 192 * h + 64 * t);
      use(4 * h + t, bit_and(raw[t], broadcast_byte(63)));
    });
    use(4 * h + 3, and_or(shift_right<6>(raw[0]), broadcast_byte(3),
                          and_or(shift_right<4>(raw[1]), broadcast_byte(0x0C),
                                 bit_and(shift_right<2>(raw[2]), broadcast_byte(0x30)))));
  });
}

// `high`: lines 4..7 times 16.
template <bool high = false, class Use> TM_INLINE void pair_lines(const uint8_t* at, Use use) {
  unroll<4>([&](auto t) TM_LAMBDA {
    const Bytes raw = load_bytes(at + 64 * (t / 2));
    constexpr int up = high ? 4 : 0;
    use(t, shift_right_and<t % 2 * 2, 3>(raw));
    use(t + 4, shift_right_and<4 + t % 2 * 2 - up, 3 << up>(raw));
  });
}

}  // namespace mill::TM_ISA::linear
