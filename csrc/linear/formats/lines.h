// Writing codes into the lines of a panel: shared by the formats. `codes` are 32 unsigned codes of one row.
// Line byte 4 * row + b of line t belongs to input 4 t + b.
#pragma once
#include "linear/format.h"

namespace mill::TM_ISA::linear {

inline void put_nibbles(const uint8_t* codes, int row, uint8_t* at) {  // 4 lines: low = inputs 0..15, high = 16..31
  for (int t = 0; t < 4; ++t)
    for (int b = 0; b < 4; ++b)
      at[64 * t + 4 * row + b] =
          static_cast<uint8_t>((codes[4 * t + b] & 15) | (codes[16 + 4 * t + b] & 15) << 4);
}

// 2 lines: bits 2 f of the h-th are line 4 h + f
inline void put_pairs(const uint8_t* codes, int shift, int row, uint8_t* at) {
  for (int h = 0; h < 2; ++h)
    for (int b = 0; b < 4; ++b) {
      unsigned v = 0;
      for (int f = 0; f < 4; ++f) v |= (codes[16 * h + 4 * f + b] >> shift & 3u) << (2 * f);
      at[64 * h + 4 * row + b] = static_cast<uint8_t>(v);
    }
}

inline void put_bits(const uint8_t* codes, int shift, int row, uint8_t* at) {  // 1 line: bit t is line t
  for (int b = 0; b < 4; ++b) {
    unsigned v = 0;
    for (int t = 0; t < 8; ++t) v |= (codes[4 * t + b] >> shift & 1u) << t;
    at[4 * row + b] = static_cast<uint8_t>(v);
  }
}

inline void put_half(const uint8_t* f16, int row, uint8_t* at) { std::memcpy(at + 2 * row, f16, 2); }

// ---- and reading them back as lines ----

template <class Use> TM_INLINE void nibble_lines(const uint8_t* at, Use use) {
  const Bytes low = broadcast_byte(15);
  unroll<4>([&](auto t) TM_LAMBDA {
    const Bytes raw = load_bytes(at + 64 * t);
    use(t, bit_and(raw, low));
    use(t + 4, bit_and(shift_right<4>(raw), low));
  });
}

template <int from, int to> TM_INLINE Bytes move_bits(Bytes a) {  // bit `from` of each byte to bit `to`: mask after
  if constexpr (from == to) return a;
  else if constexpr (from < to) return shift_left<to - from>(a);
  else return shift_right<from - to>(a);
}

// Nibbles and a fifth bit.
template <class Use> TM_INLINE void five_bit_lines(const uint8_t* high_at, const uint8_t* at, Use use) {
  const Bytes low = broadcast_byte(15), bit = broadcast_byte(16), high = load_bytes(high_at);
  unroll<4>([&](auto t) TM_LAMBDA {
    const Bytes raw = load_bytes(at + 64 * t);
    use(t, and_or(move_bits<t, 4>(high), bit, bit_and(raw, low)));
    use(t + 4, and_or(move_bits<t + 4, 4>(high), bit, bit_and(shift_right<4>(raw), low)));
  });
}

// Nibbles and two bits above.
template <class Use> TM_INLINE void six_bit_lines(const uint8_t* high_at, const uint8_t* at, Use use) {
  const Bytes low = broadcast_byte(15), bits = broadcast_byte(48);
  const Bytes high0 = load_bytes(high_at), high1 = load_bytes(high_at + 64);
  unroll<4>([&](auto t) TM_LAMBDA {
    const Bytes raw = load_bytes(at + 64 * t);
    use(t, and_or(move_bits<2 * t, 4>(high0), bits, bit_and(raw, low)));
    use(t + 4, and_or(move_bits<2 * t, 4>(high1), bits, bit_and(shift_right<4>(raw), low)));
  });
}

template <class Use> TM_INLINE void pair_lines(const uint8_t* at, Use use) {
  const Bytes mask = broadcast_byte(3);
  unroll<8>([&](auto t) TM_LAMBDA {
    use(t, bit_and(move_bits<2 * (t & 3), 0>(load_bytes(at + 64 * (t >> 2))), mask));
  });
}

}  // namespace mill::TM_ISA::linear
