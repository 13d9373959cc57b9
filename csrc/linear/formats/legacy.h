// Types with one f16 scale (and min) for each 32 inputs: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL.
//
// A line is 64 bytes: 16 rows x 4 bytes, row r at bytes 4 r .. 4 r + 3. In the nibble line t of 32 inputs the low
// nibbles are inputs 4 t .. 4 t + 3, the high ones 16 + 4 t ...; fives: lines.h.
//
//   Q8_0   16 rows x 64 | d [2][16] f16, 64 B | 2 x 8 lines of code + 128 |                        1088 B
//   Q4_0   16 rows x 64 | d [2][16], 64 B | 2 x 4 nibble lines |                         576 B   (IQ4_NL too)
//   Q4_1   16 rows x 32 | d [16], m [16], 64 B | 4 nibble lines |                                   320 B
//   Q5_0   16 rows x 64 | d [2][16], 64 B | 2 x 5 lines of fives |                                      704 B
//   Q5_1   16 rows x 32 | d [16], m [16], 64 B | 5 lines of fives |                                     384 B
#pragma once
#include "linear/formats/lines.h"
#include "linear/formats/tables.h"

namespace mill::TM_ISA::linear {

template <int file_bytes> struct ScaleOnly {  // d [2][16], 64 inputs
  static constexpr int kInputs = 64, kFront = 0, kGroup = 32, kFileInputs = 32, kFileBytes = file_bytes;
  static constexpr bool kMins = false, kWhole = false;
  struct Scales {
    const uint8_t* block;
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {}
    TM_INLINE Floats scale(int k) const { return load_f16(block + 32 * k); }
  };
};

template <int file_bytes> struct ScaleAndMin {  // d [16], m [16], 32 inputs
  static constexpr int kInputs = 32, kFront = 0, kGroup = 32, kFileInputs = 32, kFileBytes = file_bytes;
  static constexpr bool kMins = true, kWhole = false;
  struct Scales {
    const uint8_t* block;
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {}
    TM_INLINE Floats scale(int) const { return load_f16(block); }
    TM_INLINE Floats min(int) const { return sub(zero_floats(), load_f16(block + 32)); }  // m is added
  };
};

struct Q8_0 : ScaleOnly<34> {
  static constexpr int kBytes = 1088, kOffset = 128;
  static constexpr bool kWide = true;
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    unroll<8>([&](auto t) TM_LAMBDA { use(t, load_bytes(block + 64 + 512 * j + 64 * t)); });
  }
  static void pack(const uint8_t* const rows[16], int blocks, uint8_t*, uint8_t* out) {
    for (int j = 0; j < blocks; ++j)
      for (int r = 0; r < 16; ++r) {
        const uint8_t* in = rows[r] + kFileBytes * j;
        put_half(in, r, out + 32 * j);
        put_words(in + 2, 8, r, out + 64 + 512 * j);
      }
    for (int i = 64; i < 64 + 512 * blocks; ++i) out[i] ^= 0x80;
  }
};

struct Q4_0 : ScaleOnly<18> {
  static constexpr int kBytes = 576, kOffset = 8, kHighFrom = 4, kHighTimes = 16;
  static constexpr bool kWide = false;
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    nibble_lines<high>(block + 64 + 256 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int blocks, uint8_t*, uint8_t* out) {
    for (int j = 0; j < blocks; ++j)
      for (int r = 0; r < 16; ++r) {
        const uint8_t* in = rows[r] + kFileBytes * j;
        put_half(in, r, out + 32 * j);
        put_words(in + 2, 4, r, out + 64 + 256 * j);
      }
  }
};

struct IQ4_NL : Q4_0 {
  static constexpr int kOffset = 128, kHighTimes = 1;
  static constexpr bool kWide = true;
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    table_lines(kIQ4Codes, block + 64 + 256 * j, use);
  }
};

struct Q4_1 : ScaleAndMin<20> {
  static constexpr int kBytes = 320, kOffset = 0, kHighFrom = 4, kHighTimes = 16;
  static constexpr bool kWide = false;
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int, Use use) {
    nibble_lines<high>(block + 64, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, out);
      put_half(rows[r] + 2, r, out + 32);
      put_words(rows[r] + 4, 4, r, out + 64);
    }
  }
};

// 32 codes of nibbles, inputs 0..15 low ones, and a word whose bit j is the fifth bit of input j.
inline void five_bit_codes(const uint8_t* nibbles, uint32_t fifth, uint8_t* codes) {
  const auto four = [&](int from) { return ((fifth >> from & 15) * 0x00204081 & 0x01010101) << 4; };
  for (int t = 0; t < 16; t += 4) {
    store_u32(codes + t, (load_u32(nibbles + t) & 0x0f0f0f0f) | four(t));
    store_u32(codes + 16 + t, (load_u32(nibbles + t) >> 4 & 0x0f0f0f0f) | four(16 + t));
  }
}

struct Q5_0 : ScaleOnly<22> {
  static constexpr int kBytes = 704, kOffset = 16, kHighFrom = 5, kHighTimes = 8;
  static constexpr bool kWide = false;
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    five_bit_lines<high>(block + 64 + 320 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int blocks, uint8_t*, uint8_t* out) {
    for (int j = 0; j < blocks; ++j)
      for (int r = 0; r < 16; ++r) {
        const uint8_t* in = rows[r] + kFileBytes * j;
        put_half(in, r, out + 32 * j);
        uint8_t codes[32];
        five_bit_codes(in + 6, load_u32(in + 2), codes);
        put_fives(codes, r, out + 64 + 320 * j);
      }
  }
};

struct Q5_1 : ScaleAndMin<24> {
  static constexpr int kBytes = 384, kOffset = 0, kHighFrom = 5, kHighTimes = 8;
  static constexpr bool kWide = false;
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int, Use use) {
    five_bit_lines<high>(block + 64, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r], r, out);
      put_half(rows[r] + 2, r, out + 32);
      uint8_t codes[32];
      five_bit_codes(rows[r] + 8, load_u32(rows[r] + 4), codes);
      put_fives(codes, r, out + 64);
    }
  }
};

}  // namespace mill::TM_ISA::linear
