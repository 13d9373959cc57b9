// Types with blocks of 256 inputs and whole scales (and mins): Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS. Lines of codes as in
// lines.h, for each 32 inputs together, in stream order.
//
//   Q2_K    | d, dmin [16] f16 64 B | scales 2 x N | mins 2 x n | 8 x 2 pair lines |                          1344 B
//   Q3_K    front: d [16] 32 B | scales: S0 S1 S2 | 8 x 3 triple lines |                                     1728 B
//   Q4_K    | d, dmin 64 B | scales: S M H | 8 x 4 nibble lines |                                            2304 B
//   Q5_K    | d, dmin 64 B | scales: S M H | 8 x 5 lines of fives |                                           2816 B
//   Q6_K    front: d 32 B | scales int8 [16 groups][16 rows] 256 B | 8 x 6 lines of sixes |                  3328 B
//   IQ4_XS  | d 32 B | high 2 bits of scales 32 B | low 4 bits 64 B | 8 x 4 nibble lines |                   2176 B
//
//   S (M): low 4 bits of the scales (mins), [4 groups][16 rows] bytes, low nibbles groups 0..3, high ones 4..7.
//   H: bits 0-1 high bits of scales 0..3, 2-3 of scales 4..7, 4-5 of mins 0..3, 6-7 of mins 4..7.
//   S0, S1: low 4 bits of scales 0..3 | 4..7, 8..11 | 12..15; S2: bits 2 f high bits of scales 4 f .. 4 f + 3. Here the two
//   scales of 32 inputs are neighbours: [2 x 32 inputs][16 rows][2].
//   n: a row's dword has 8 of its groups as nibbles, first to last. N: its low half has 0 2 4 6 of them, its high 1 3 5 7.
//   Triple lines of Q3_K: bits 0-2 of line i are line i of the 8, bits 4-6 line 4 + i; bits 3 and 7 bit i of 3 and 7.
#pragma once
#include "linear/formats/lines.h"
#include "linear/formats/tables.h"

namespace mill::TM_ISA::linear {

alignas(32) inline constexpr int32_t kFours[8] = {0, 4, 8, 12, 16, 20, 24, 28};  // where a dword's nibbles begin

// ---- Q4_K, Q5_K ----

struct SixBitScales {  // as they lie in the file: 12 bytes for 8 scales and 8 mins
  static constexpr int kInputs = 256, kFront = 0, kGroup = 32, kFileInputs = 256, kOffset = 0;
  static constexpr bool kMins = true, kWide = false, kWhole = true;

  struct Scales {
    const uint8_t* block;
    alignas(64) uint8_t codes[256];
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {
      const Bytes low = broadcast_byte(15), two = broadcast_byte(48);
      const Bytes s = load_bytes(block + 64), m = load_bytes(block + 128), h = load_bytes(block + 192);
      store(codes, and_or(shift_left<4>(h), two, bit_and(s, low)));
      store(codes + 64, and_or(shift_left<2>(h), two, bit_and(shift_right<4>(s), low)));
      store(codes + 128, and_or(h, two, bit_and(m, low)));
      store(codes + 192, and_or(shift_right<2>(h), two, bit_and(shift_right<4>(m), low)));
    }
    TM_INLINE Ints whole(int k) const { return load_u8_ints(codes + 16 * k); }
    TM_INLINE Ints whole_min(int k) const { return load_u8_ints(codes + 128 + 16 * k); }
    TM_INLINE Floats d() const { return load_f16(block); }
    TM_INLINE Floats dmin() const { return load_f16(block + 32); }
  };

  static void pack_scales(const uint8_t* file, int row, uint8_t* block) {  // file: d, dmin, 12 bytes
    put_half(file, row, block);
    put_half(file + 2, row, block + 32);
    const uint8_t* q = file + 4;
    for (int j = 0; j < 8; ++j) {
      const unsigned sc = j < 4 ? q[j] & 63u : (q[j + 4] & 15u) | (q[j - 4] >> 6) << 4;
      const unsigned m = j < 4 ? q[j + 4] & 63u : (q[j + 4] >> 4) | (q[j] >> 6) << 4;
      const int at = 16 * (j & 3) + row, high = j / 4;
      block[64 + at] = static_cast<uint8_t>(block[64 + at] | (sc & 15) << 4 * high);
      block[128 + at] = static_cast<uint8_t>(block[128 + at] | (m & 15) << 4 * high);
      block[192 + at] = static_cast<uint8_t>(block[192 + at] | (sc >> 4) << 2 * high | (m >> 4) << (4 + 2 * high));
    }
  }
};

// 32 codes of the j-th group: runs of 32 bytes hold 64 inputs, low nibbles first, or 128, two bits each.
TM_INLINE void add_nibbles(const uint8_t* q, int j, uint8_t* codes) { add_bits(q + 32 * (j / 2), j % 2 * 4, 15, 0, codes); }
TM_INLINE void add_pairs(const uint8_t* q, int j, int to, uint8_t* codes) {
  add_bits(q + 32 * (j / 4), j % 4 * 2, 3, to, codes);
}

struct Q4_K : SixBitScales {
  static constexpr int kBytes = 2304, kFileBytes = 144, kHighFrom = 4, kHighTimes = 16;
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    nibble_lines<high>(block + 256 + 256 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      pack_scales(rows[r], r, out);
      for (int j = 0; j < 8; ++j) {
        uint8_t codes[32] = {};
        add_nibbles(rows[r] + 16, j, codes);
        put_nibbles(codes, r, out + 256 + 256 * j);
      }
    }
  }
};

struct Q5_K : SixBitScales {
  static constexpr int kBytes = 2816, kFileBytes = 176, kHighFrom = 5, kHighTimes = 8;
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    five_bit_lines<high>(block + 256 + 320 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      pack_scales(rows[r], r, out);
      for (int j = 0; j < 8; ++j) {
        uint8_t codes[32] = {};
        add_nibbles(rows[r] + 48, j, codes);
        add_bits(rows[r] + 16, j, 1, 4, codes);
        put_fives(codes, r, out + 256 + 320 * j);
      }
    }
  }
};

// ---- scales for each 16 inputs ----

struct Q6_K {
  static constexpr int kInputs = 256, kBytes = 3328, kFront = 32, kGroup = 16, kOffset = 32;
  static constexpr int kFileInputs = 256, kFileBytes = 210;
  static constexpr bool kMins = false, kWide = false, kWhole = true;
  struct Scales {
    const uint8_t *front, *block;
    TM_INLINE Scales(const uint8_t* front, const uint8_t* block) : front(front), block(block) {}
    TM_INLINE Ints whole(int k) const { return load_s8_ints(block + 16 * k); }
    TM_INLINE Floats d() const { return load_f16(front); }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    six_bit_lines(block + 256 + 384 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t *low = rows[r], *high = low + 128, *scale = low + 192;
      put_half(low + 208, r, front);
      for (int g = 0; g < 16; ++g) out[16 * g + r] = scale[g];
      for (int j = 0; j < 8; ++j) {  // 128 inputs: 64 low bytes, 32 high bytes
        uint8_t codes[32] = {};
        add_bits(low + 64 * (j / 4) + 32 * (j % 2), j / 2 % 2 * 4, 15, 0, codes);
        add_pairs(high, j, 4, codes);
        put_sixes(codes, r, out + 256 + 384 * j);
      }
    }
  }
};

inline void put_triples(const uint8_t* codes, int row, uint8_t* at) {
  for (int b = 0; b < 4; ++b)
    for (int i = 0; i < 3; ++i) {
      const unsigned low = codes[4 * i + b] | (codes[12 + b] >> i & 1u) << 3;
      const unsigned high = codes[16 + 4 * i + b] | (codes[28 + b] >> i & 1u) << 3;
      at[64 * i + 4 * row + b] = static_cast<uint8_t>(low | high << 4);
    }
}

struct Q3_K {
  static constexpr int kInputs = 256, kBytes = 1728, kFront = 32, kGroup = 16, kOffset = 4;
  static constexpr int kFileInputs = 256, kFileBytes = 110;
  static constexpr bool kMins = false, kWide = false, kWhole = true;
  static constexpr int kFold = 128;  // code x scale is -124 .. 128: negated it fits
  struct Scales {
    const uint8_t* front;
    alignas(64) uint8_t codes[256];
    TM_INLINE Scales(const uint8_t* front, const uint8_t* block) : front(front) {
      const Bytes low = broadcast_byte(15), two = broadcast_byte(48), h = load_bytes(block + 128), less = broadcast_byte(-32);
      unroll<2>([&](auto i) TM_LAMBDA {
        const Bytes s = load_bytes(block + 64 * i);
        store(codes + 128 * i, add(and_or(move_bits<4 * i, 4>(h), two, bit_and(s, low)), less));
        store(codes + 128 * i + 64, add(and_or(move_bits<4 * i + 2, 4>(h), two, bit_and(shift_right<4>(s), low)), less));
      });
    }
    TM_INLINE Ints pair(int j) const { return load_s8_words(codes + 32 * j); }
    TM_INLINE Ints whole(int k) const { return k % 2 == 0 ? low_word(pair(k / 2)) : high_word(pair(k / 2)); }
    TM_INLINE Floats d() const { return load_f16(front); }
  };
  template <bool sixteenths = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    const uint8_t* at = block + 192 + 192 * j;
    const Bytes raw[3] = {load_bytes(at), load_bytes(at + 64), load_bytes(at + 128)};
    const Bytes last = and_or(shift_right<1>(raw[2]), broadcast_byte(0x44),
                              and_or(shift_right<2>(raw[1]), broadcast_byte(0x22),
                                     bit_and(shift_right<3>(raw[0]), broadcast_byte(0x11))));
    unroll<4>([&](auto t) TM_LAMBDA {
      const Bytes both = t < 3 ? raw[t] : last;
      use(t, bit_and(both, broadcast_byte(7)));
      use(t + 4, sixteenths ? bit_and(both, broadcast_byte(0x70)) : bit_and(shift_right<4>(both), broadcast_byte(7)));
    });
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t *high = rows[r], *scale = high + 96;
      put_half(high + 108, r, front);
      for (int g = 0; g < 16; ++g) {
        const unsigned low4 = scale[g % 8] >> (g / 8 * 4) & 15u, high2 = scale[8 + g % 4] >> (g / 4 * 2) & 3u;
        const int at = 32 * ((g & 3) / 2) + 2 * r + (g & 1);
        uint8_t& s = out[64 * (g / 8) + at];
        s = static_cast<uint8_t>(s | low4 << (g / 4 % 2 * 4));
        out[128 + at] = static_cast<uint8_t>(out[128 + at] | high2 << (g / 4 * 2));
      }
      for (int j = 0; j < 8; ++j) {
        uint8_t codes[32] = {};
        add_pairs(high + 32, j, 0, codes);
        add_bits(high, j, 1, 2, codes);
        put_triples(codes, r, out + 192 + 192 * j);
      }
    }
  }
};

struct Q2_K {
  static constexpr int kInputs = 256, kBytes = 1344, kFront = 0, kGroup = 16, kOffset = 0;
  static constexpr int kFileInputs = 256, kFileBytes = 84;
  static constexpr bool kMins = true, kWide = false, kWhole = true;
  static constexpr int kFold = 0;
  struct Scales {
    const uint8_t* block;
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {}
    TM_INLINE Ints pair(int j) const { return bit_and(nibble(64 + 64 * (j / 4), j % 4), broadcast(0x000F000F)); }
    TM_INLINE Ints whole(int k) const { return k % 2 == 0 ? low_word(pair(k / 2)) : high_word(pair(k / 2)); }
    TM_INLINE Floats float_min(int k) const { return low_nibbles(nibble(192 + 64 * (k / 8), k % 8)); }
    TM_INLINE Floats d() const { return load_f16(block); }
    TM_INLINE Floats dmin() const { return load_f16(block + 32); }

   private:
    TM_INLINE Ints nibble(int line, int i) const { return shift_right(load_ints(block + line), kFours + i); }
  };
  template <bool sixteenths = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    pair_lines<sixteenths>(block + 320 + 128 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r] + 80, r, out);
      put_half(rows[r] + 82, r, out + 32);
      uint32_t scales[2] = {}, mins[2] = {};
      for (int g = 0; g < 16; ++g) {
        scales[g / 8] |= (rows[r][g] & 15u) << (g % 2 * 16 + g / 2 % 4 * 4);
        mins[g / 8] |= static_cast<uint32_t>(rows[r][g] >> 4) << (g % 8 * 4);
      }
      for (int h = 0; h < 2; ++h) {
        store_u32(out + 64 + 64 * h + 4 * r, scales[h]);
        store_u32(out + 192 + 64 * h + 4 * r, mins[h]);
      }
      for (int j = 0; j < 8; ++j) {
        uint8_t codes[32] = {};
        add_pairs(rows[r] + 16, j, 0, codes);
        put_pairs(codes, r, out + 320 + 128 * j);
      }
    }
  }
};

struct IQ4_XS {
  static constexpr int kInputs = 256, kBytes = 2176, kFront = 0, kGroup = 32, kOffset = 128;
  static constexpr int kFileInputs = 256, kFileBytes = 136;
  static constexpr bool kMins = false, kWide = true, kWhole = true;
  struct Scales {
    const uint8_t* block;
    alignas(64) uint8_t codes[128];
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {
      const uint8_t *high = block + 32, *low = block + 64;
      for (int i = 0; i < 64; ++i) {
        codes[i] = low[i] & 15;
        codes[64 + i] = low[i] >> 4;
      }
      for (int f = 0; f < 4; ++f)  // 2 bits for groups 2 f and 2 f + 1
        for (int i = 0; i < 32; ++i)
          codes[32 * f + i] = static_cast<uint8_t>((codes[32 * f + i] | (high[i] >> 2 * f & 3) << 4) - 32);
    }
    TM_INLINE Ints whole(int k) const { return load_s8_ints(codes + 16 * k); }
    TM_INLINE Floats d() const { return load_f16(block); }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    table_lines(kIQ4Codes, block + 128 + 256 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t *file = rows[r], *q = file + 8;
      put_half(file, r, out);
      for (int j = 0; j < 8; ++j) {
        const unsigned low4 = file[4 + j / 2] >> (j % 2 * 4) & 15u, high2 = file[2 + j / 4] >> (j % 4 * 2) & 3u;
        uint8_t &h = out[32 + 16 * (j % 2) + r], &l = out[64 + 16 * (j % 4) + r];
        h = static_cast<uint8_t>(h | high2 << (j / 2 * 2));
        l = static_cast<uint8_t>(l | low4 << (j / 4 * 4));
        put_words(q + 16 * j, 4, r, out + 128 + 256 * j);
      }
    }
  }
};

}  // namespace mill::TM_ISA::linear
