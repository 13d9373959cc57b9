// FP4 with byte scales, ternary and one- or two-bit types: MXFP4 NVFP4 Q1_0 Q2_0 TQ1_0 TQ2_0. Lines as in lines.h.
//
//   MXFP4   128 inputs | e [4][16] E8M0, 64 B | 4 x 4 nibble lines |                     1088 B
//   NVFP4    64 inputs | scales [4 groups of 16][16] UE4M3, 64 B | 2 x 4 nibble lines |   576 B
//   Q1_0    256 inputs | d [2][16] f16, 64 B | 8 x bit line |                             576 B
//   Q2_0    128 inputs | d [2][16] f16, 64 B | 4 x 2 pair lines |                         576 B
//   TQ2_0   256 inputs, front: d 32 B | 8 x 2 pair lines |                               1024 B
//   TQ1_0   256 inputs, front: d 32 B | 13 trit lines |                                   832 B
//           trit line i holds lines 5 i .. 5 i + 4 of the 64: a byte is a fraction of 256 in base 3 (as in the file),
//           times 3 the next trit is the carry.
#pragma once
#include "linear/formats/lines.h"
#include "linear/formats/tables.h"

namespace mill::TM_ISA::linear {

struct MXFP4 {
  static constexpr int kInputs = 128, kBytes = 1088, kFront = 0, kGroup = 32, kOffset = 12;
  static constexpr int kFileInputs = 32, kFileBytes = 17;
  static constexpr bool kMins = false, kWide = false, kWhole = false, kHuge = true;
  // Half of 2^(e - 127), since the codes are doubled. e = 0 and 1 are subnormal: bits 2^21 and 2^22.
  static TM_INLINE Floats half_power(Ints e) {
    const Ints less = add(e, broadcast(-1)), floor = max(less, broadcast(0));
    const Ints tiny = shift_left<21>(add(broadcast(1), sub(e, floor)));
    return from_bits(max(shift_left<23>(less), tiny));
  }
  struct Scales {
    const uint8_t* block;
    alignas(64) uint8_t less[64];  // e - 1
    bool tiny;                     // some are below 2
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {
      const Bytes e = load_bytes(block);
      store(less, add(e, broadcast_byte(-1)));
      tiny = any_below(e, 2);
    }
    TM_INLINE Floats scale(int k) const {
      return tiny ? half_power(load_u8_ints(block + 16 * k)) : from_bits(shift_left<23>(load_u8_ints(less + 16 * k)));
    }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    table_lines(kFP4Codes, block + 64 + 256 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int blocks, uint8_t*, uint8_t* out) {
    for (int j = 0; j < blocks; ++j)
      for (int r = 0; r < 16; ++r) {
        const uint8_t* in = rows[r] + kFileBytes * j;
        out[16 * j + r] = in[0];
        put_words(in + 1, 4, r, out + 64 + 256 * j);
      }
  }
};

struct NVFP4 {
  static constexpr int kInputs = 64, kBytes = 576, kFront = 0, kGroup = 16, kOffset = 12;
  static constexpr int kFileInputs = 64, kFileBytes = 36;
  static constexpr bool kMins = false, kWide = false, kWhole = false;
  struct Scales {
    const uint8_t* block;
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {}
    TM_INLINE Floats scale(int k) const { return load_half_e4m3(block + 16 * k); }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    table_lines(kFP4Codes, block + 64 + 256 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      uint8_t codes[64];
      for (int k = 0; k < 64; ++k) codes[k] = rows[r][4 + k / 16 * 8 + k % 8] >> (k % 16 / 8 * 4) & 15;
      for (int g = 0; g < 4; ++g)  // the top bit is ignored, 0x7F alone means 0
        out[16 * g + r] = rows[r][g] == 0x7F ? 0 : rows[r][g] & 0x7F;
      for (int j = 0; j < 2; ++j) put_nibbles(codes + 32 * j, r, out + 64 + 256 * j);
    }
  }
};

struct Q1_0 {
  static constexpr int kInputs = 256, kBytes = 576, kFront = 0, kGroup = 32, kOffset = 1;
  static constexpr int kFileInputs = 128, kFileBytes = 18;
  static constexpr bool kMins = false, kWide = false, kWhole = false;
  struct Scales {
    const uint8_t* block;
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {}
    TM_INLINE Floats scale(int k) const { return load_f16(block + 32 * (k / 4)); }
  };
  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {  // 0 or 2, less 1
    const Bytes raw = load_bytes(block + 64 + 64 * j), mask = broadcast_byte(2);
    unroll<8>([&](auto t) TM_LAMBDA { use(t, bit_and(move_bits<t, 1>(raw), mask)); });
  }
  static void pack(const uint8_t* const rows[16], int blocks, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r)
      for (int i = 0; i < blocks; ++i) {
        const uint8_t* in = rows[r] + kFileBytes * i;
        put_half(in, r, out + 32 * i);
        for (int j = 0; j < 4; ++j) put_word_of_bits(load_u32(in + 2 + 4 * j), r, out + 64 + 64 * (4 * i + j));
      }
  }
};

struct Q2_0 {
  static constexpr int kInputs = 128, kBytes = 576, kFront = 0, kGroup = 32, kOffset = 1;
  static constexpr int kFileInputs = 64, kFileBytes = 18, kHighFrom = 4, kHighTimes = 16;
  static constexpr bool kMins = false, kWide = false, kWhole = false;
  struct Scales {
    const uint8_t* block;
    TM_INLINE Scales(const uint8_t*, const uint8_t* block) : block(block) {}
    TM_INLINE Floats scale(int k) const { return load_f16(block + 32 * (k / 2)); }
  };
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    pair_lines<high>(block + 64 + 128 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int blocks, uint8_t*, uint8_t* out) {
    for (int r = 0; r < 16; ++r)
      for (int i = 0; i < blocks; ++i) {
        const uint8_t* in = rows[r] + kFileBytes * i;
        uint8_t codes[64];
        for (int k = 0; k < 64; ++k) codes[k] = in[2 + k / 4] >> (k % 4 * 2) & 3;
        put_half(in, r, out + 32 * i);
        for (int j = 0; j < 2; ++j) put_pairs(codes + 32 * j, r, out + 64 + 128 * (2 * i + j));
      }
  }
};

struct Ternary {  // one f16 for 256 inputs, in front
  static constexpr int kInputs = 256, kFront = 32, kGroup = 32, kOffset = 1, kFileInputs = 256;
  static constexpr bool kMins = false, kWide = false, kWhole = true, kOnes = true;
  struct Scales {
    const uint8_t* front;
    TM_INLINE Scales(const uint8_t* front, const uint8_t*) : front(front) {}
    TM_INLINE Ints whole(int) const { return broadcast(1); }
    TM_INLINE Floats d() const { return load_f16(front); }
  };
};

struct TQ2_0 : Ternary {
  static constexpr int kBytes = 1024, kFileBytes = 66, kHighFrom = 4, kHighTimes = 16;
  template <bool high = false, class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    pair_lines<high>(block + 128 * j, use);
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      put_half(rows[r] + 64, r, front);
      for (int j = 0; j < 8; ++j) {  // four codes a byte, 32 inputs apart
        uint8_t codes[32] = {};
        add_bits(rows[r] + 32 * (j / 4), j % 4 * 2, 3, 0, codes);
        put_pairs(codes, r, out + 128 * j);
      }
    }
  }
};

struct TQ1_0 : Ternary {
  static constexpr int kBytes = 832, kFileBytes = 54;
  static constexpr bool kRemainders = true;
  static constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};

  static TM_INLINE unsigned trit(uint8_t byte, int k) { return static_cast<uint8_t>(byte * kPowers[k]) * 3u >> 8; }

  template <class Use> static TM_INLINE void lines(const uint8_t* block, int j, Use use) {
    remainders(block, j, [&](int t, Bytes rest, Bytes) TM_LAMBDA { use(t, thirds(rest)); });
  }
  template <class Use> static TM_INLINE void remainders(const uint8_t* block, int j, Use use) {
    const uint8_t* at = block + 8 * j / 5 * 64;
    switch (8 * j % 5) {
      case 0: return rests_from<0>(at, use);
      case 1: return rests_from<1>(at, use);
      case 2: return rests_from<2>(at, use);
      case 3: return rests_from<3>(at, use);
      default: return rests_from<4>(at, use);
    }
  }
  static void pack(const uint8_t* const rows[16], int, uint8_t* front, uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
      const uint8_t* in = rows[r];
      put_half(in + 52, r, front);
      for (int i = 0; i < 13; ++i)
        for (int b = 0; b < 4; ++b) {
          unsigned v = 0;
          for (int k = 0; k < 5; ++k) v = 3 * v + (5 * i + k < 64 ? code(in, 4 * (5 * i + k) + b) : 0);
          out[64 * i + 4 * r + b] = static_cast<uint8_t>((v * 256 + 242) / 243);
        }
    }
  }

 private:
  static TM_INLINE Bytes triple(Bytes a) { return add(a, add(a, a)); }
  // Of eight lines, the first of which is trit `skip` of the bytes at `at`.
  template <int skip, class Use> static TM_INLINE void rests_from(const uint8_t* at, Use use) {
    Bytes rest = load_bytes(at);
    for (int i = 0; i < skip; ++i) rest = triple(rest);
    unroll<8>([&](auto t) TM_LAMBDA {
      if constexpr (t != 0 && (skip + t) % 5 == 0) rest = load_bytes(at + (skip + t) / 5 * 64);
      const Bytes next = triple(rest);
      use(t, rest, next);
      rest = next;
    });
  }
  static unsigned code(const uint8_t* in, int input) {  // 160 inputs in 32 bytes, 80 in 16, 16 in 4
    if (input < 160) return trit(in[input % 32], input / 32);
    if (input < 240) return trit(in[32 + (input - 160) % 16], (input - 160) / 16);
    return trit(in[48 + (input - 240) % 4], (input - 240) / 4);
  }
};

}  // namespace mill::TM_ISA::linear
