// Numbers as caches keep them: float32, bfloat16, float16, rows of integers (f16 too), and blocks of 32 along a head as q8_0 and
// q4_0.
//
// Keys that serve as values (latent caches) are float16 as f16. Where both are stored, f16 keeps each row as integers times a
// bfloat16, scales and integers of a block of rows apart; a line of 64 bytes is what a dot of pairs takes:
//
//   f16 keys:   [lanes] scales, [K / 2][lanes][2 dims] integers
//   f16 values: [lanes] scales, [lanes / 2][v_stride][2 rows] integers
//
// A row of blocks is as in a file: f16 scale, codes; scale, codes; …  So are keys that serve as values (latent caches).
// Where both are stored, each 32 dims of a block of rows keep scales and codes apart, codes in lines of 64 bytes that a dot of
// bytes takes as they are (coded.h): 4 dims of 16 keys side by side, or 4 rows of 16 dims of values.
//
//   q8_0 keys:   [lanes] scales, [8 × 4 dims][lanes][4] codes + 128 | next 32 dims …
//   q8_0 values: [lanes] scales, [lanes / 4][32 dims][4 rows] codes + 128 | next 32 dims …
//   q4_0 keys:   [lanes] scales, [4 × 4 dims][lanes][4] codes of dims j (low nibble) and j + 16 (high) | next 32 dims …
//   q4_0 values: [lanes] scales, [lanes / 4][16 dims][4 rows] codes of dims j and j + 16 | next 32 dims …
//
// Rounding is that of tensormill.quant; a block that holds a NaN or an infinity has the scale NaN. All reads give one
// float32 a number, whoever asks.
#pragma once

#include <cmath>

#include "ops/loops.h"
#include "ops/tile.h"

namespace mill::TM_ISA {

enum StoredType : int32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ8_0 = 8, kBF16 = 30 };

struct BF16 {
  uint16_t bits;
};

#if defined(__AVX512F__)
inline Lanes load(const BF16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline Lanes load(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Low nibbles of 16 bytes less 8, and high ones.
inline void load_nibbles(const uint8_t* p, Lanes& low, Lanes& high) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i eight = _mm512_set1_epi32(8);
  low = {_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_and_si512(bytes, _mm512_set1_epi32(15)), eight))};
  high = {_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_srli_epi32(bytes, 4), eight))};
}
#elif defined(__AVX2__)
inline __m256 from_bf16(const BF16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Lanes load(const BF16* p) { return {from_bf16(p), from_bf16(p + 8)}; }
inline __m256 from_bytes(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Lanes load(const int8_t* p) { return {from_bytes(p), from_bytes(p + 8)}; }
inline void load_nibbles(const uint8_t* p, Lanes& low, Lanes& high) {
  const __m256i eight = _mm256_set1_epi32(8), first = _mm256_set1_epi32(15);
  const __m256i a = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)));
  low = {_mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(a, first), eight)),
         _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(b, first), eight))};
  high = {_mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(a, 4), eight)),
          _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(b, 4), eight))};
}
#else
inline Lanes load(const BF16* p) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t bits = static_cast<uint32_t>(p[i].bits) << 16;
    std::memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
inline Lanes load(const int8_t* p) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(p[i]);
  return r;
}
inline void load_nibbles(const uint8_t* p, Lanes& low, Lanes& high) {
  for (int i = 0; i < kLanes; ++i) {
    low.v[i] = static_cast<float>((p[i] & 15) - 8);
    high.v[i] = static_cast<float>((p[i] >> 4) - 8);
  }
}
#endif

inline void store(BF16* p, Lanes a) {
  uint32_t x[kLanes];
  store(reinterpret_cast<float*>(x), a);
  for (int i = 0; i < kLanes; ++i) {
    const bool nan = (x[i] & 0x7fffffffu) > 0x7f800000u;
    const uint32_t near = x[i] + 0x7fffu + (x[i] >> 16 & 1u);  // to nearest, ties to even; a NaN stays one
    p[i].bits = static_cast<uint16_t>((nan ? x[i] | 0x400000u : near) >> 16);
  }
}

#if defined(__F16C__)
inline uint16_t half_of(float x) { return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
inline float float_of(const std::byte* half) {
  uint16_t bits;
  std::memcpy(&bits, half, 2);
  return _cvtsh_ss(bits);
}
#else
inline uint16_t half_of(float x) {
  const auto half = static_cast<_Float16>(x);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
inline float float_of(const std::byte* half) {
  _Float16 x;
  std::memcpy(&x, half, 2);
  return static_cast<float>(x);
}
#endif

// 1/d, and 0 where that is infinite: such a d is 0 as float16 anyway.
inline float inverse_of(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

constexpr uint16_t kHalfNaN = 0x7e00;

// A block of 32 numbers: its scale and kCodes bytes of codes.
struct Q8_0 {
  static constexpr int64_t kCodes = 32;
  static constexpr uint8_t kFlip = 128;  // makes signed codes count from 0, as lines have them
  uint16_t scale;
  uint8_t codes[kCodes];

  explicit Q8_0(const float* x) {
    float most = 0.0f;
    bool fine = true;
    for (int i = 0; i < 32; ++i) {
      fine &= std::isfinite(x[i]);
      most = std::fabs(x[i]) > most ? std::fabs(x[i]) : most;
    }
    const float d = most / 127.0f, by = inverse_of(d);
    scale = fine ? half_of(d) : kHalfNaN;
    for (int i = 0; i < 32; ++i) {
      const float value = fine ? x[i] * by : 0.0f, size = std::fabs(value), whole = std::floor(size);
      const auto code = static_cast<int>(whole + std::floor(2.0f * (size - whole)));  // halves away from zero
      codes[i] = static_cast<uint8_t>(static_cast<int8_t>(value < 0.0f ? -code : code));
    }
  }

  // 16 numbers of a row, dims half·16…
  static TM_INLINE Lanes row(const std::byte* block, int64_t half) {
    return load(reinterpret_cast<const int8_t*>(block + 2) + 16 * half) * splat(float_of(block));
  }
};

struct Q4_0 {
  static constexpr int64_t kCodes = 16;
  static constexpr uint8_t kFlip = 0;
  uint16_t scale;
  uint8_t codes[kCodes];

  explicit Q4_0(const float* x) {
    float most = 0.0f, largest = x[0];
    bool fine = true;
    for (int i = 0; i < 32; ++i) {
      fine &= std::isfinite(x[i]);
      if (std::fabs(x[i]) > most) most = std::fabs(x[i]), largest = x[i];  // the first of equals
    }
    const float d = largest / -8.0f, by = inverse_of(d);
    scale = fine ? half_of(d) : kHalfNaN;
    const auto code = [&](float v) {
      const int c = fine ? static_cast<int>(v * by + 8.5f) : 8;
      return c < 0 ? 0 : c > 15 ? 15 : c;
    };
    for (int i = 0; i < 16; ++i) codes[i] = static_cast<uint8_t>(code(x[i]) | code(x[i + 16]) << 4);
  }

  static TM_INLINE Lanes row(const std::byte* block, int64_t half) {
    Lanes low, high;
    load_nibbles(reinterpret_cast<const uint8_t*>(block + 2), low, high);
    return (half ? high : low) * splat(float_of(block));
  }
};

template <class Q>
constexpr int64_t kBlockBytes = 2 + Q::kCodes;

template <class Q>
void store_blocks(const float* from, int64_t n, std::byte* to) {
  for (int64_t j = 0; j < n; j += 32, to += kBlockBytes<Q>) {
    const Q block(from + j);
    std::memcpy(to, &block.scale, 2);
    std::memcpy(to + 2, block.codes, Q::kCodes);
  }
}

// One key → column `row` of its block.
template <class Q>
void store_block_key(const float* from, int64_t n, std::byte* to, int64_t row, int64_t lanes) {
  for (int64_t j = 0; j < n; j += 32, to += kBlockBytes<Q> * lanes) {
    const Q block(from + j);
    std::memcpy(to + 2 * row, &block.scale, 2);
    for (int64_t i = 0; i < Q::kCodes; ++i)
      to[2 * lanes + (i / 4 * lanes + row) * 4 + i % 4] = static_cast<std::byte>(block.codes[i] ^ Q::kFlip);
  }
}

// One row of values → its place among the four of a line.
template <class Q>
void store_block_value(const float* from, int64_t n, std::byte* to, int64_t row, int64_t lanes) {
  for (int64_t j = 0; j < n; j += 32, to += kBlockBytes<Q> * lanes) {
    const Q block(from + j);
    std::memcpy(to + 2 * row, &block.scale, 2);
    std::byte* codes = to + 2 * lanes + row / 4 * 4 * Q::kCodes + row % 4;
    for (int64_t i = 0; i < Q::kCodes; ++i) codes[4 * i] = static_cast<std::byte>(block.codes[i] ^ Q::kFlip);
  }
}

TM_INLINE Ints magnitude(Floats x) { return bit_and(bits(x), broadcast(0x7fffffff)); }

// Sixteen of n numbers from j on, zeros behind them.
TM_INLINE Floats load_part(const float* x, int64_t n, int64_t j) {
  return n - j >= kLanes ? load_floats(x + j) : load_first(x + j, static_cast<int>(n - j));
}

// A row of n numbers as integers times a scale, a bfloat16 rounded up. Keys are at most 46000 long as vectors; integers of values
// are at most 8000 (words.h says why). Rows below 2^-40 are 0; beyond 2^60, and where something is NaN, the scale is NaN.
struct WordRow {
  static constexpr float kLongestKey = 46000.0f, kLargestKey = 32767.0f, kLargestValue = 8000.0f;
  const float* x;
  int64_t n;
  uint16_t scale = 0;
  float up = 0.0f;

  WordRow(const float* from, int64_t count, bool key) : x(from), n(count) {
    Ints most = broadcast(0);
    for (int64_t j = 0; j < n; j += kLanes) most = max(most, magnitude(load_part(x, n, j)));
    const int32_t top = largest(most);
    if (top < (127 - 40) << 23) return;
    if (top >= (127 + 60) << 23) {
      scale = 0x7fc0;
      return;
    }
    float size, step;
    std::memcpy(&size, &top, 4);
    if (key) {
      Floats squares = zero_floats();
      for (int64_t j = 0; j < n; j += kLanes) {
        const Floats part = mul(load_part(x, n, j), broadcast(1.0f / size));
        squares = fma(part, part, squares);
      }
      const float length = std::sqrt(total(squares)) / kLongestKey, least = 1.0f / kLargestKey;
      step = size * (length < least ? least : length);
    } else {
      step = size / kLargestValue;
    }
    uint32_t raised;
    std::memcpy(&raised, &step, 4);
    raised = (raised + 0xffff) & 0xffff0000;
    scale = static_cast<uint16_t>(raised >> 16);
    std::memcpy(&step, &raised, 4);
    up = 1.0f / step;
  }

  // 16 of them from j on, 0 beyond the row.
  TM_INLINE void codes(int64_t j, int16_t (&to)[kLanes]) const {
    store_s16(to, up == 0.0f ? broadcast(0) : round_even(mul(load_part(x, n, j), broadcast(up))));
  }
};

// One key → column `row` of its block.
inline void store_word_key(const float* from, int64_t n, std::byte* to, int64_t row, int64_t lanes) {
  const WordRow words(from, n, true);
  std::memcpy(to + 2 * row, &words.scale, 2);
  std::byte* column = to + 2 * lanes + 4 * row;
  for (int64_t j = 0; j < n; j += kLanes) {
    int16_t codes[kLanes];
    words.codes(j, codes);
    for (int64_t i = 0; i < kLanes && j + i < n; i += 2) std::memcpy(column + (j + i) / 2 * lanes * 4, codes + i, 4);
  }
}

// One row of values → its place in a pair of rows, padded with zeros to `stride` numbers.
inline void store_word_value(const float* from, int64_t n, std::byte* to, int64_t row, int64_t lanes, int64_t stride) {
  const WordRow words(from, n, false);
  std::memcpy(to + 2 * row, &words.scale, 2);
  std::byte* pair = to + 2 * lanes + row / 2 * stride * 4 + row % 2 * 2;
  for (int64_t j = 0; j < stride; j += kLanes) {
    int16_t codes[kLanes];
    words.codes(j, codes);
    for (int64_t i = 0; i < kLanes; ++i) std::memcpy(pair + (j + i) * 4, codes + i, 2);
  }
}

// n numbers (whole vectors) of a row of blocks.
template <class Q>
void widen_blocks(const std::byte* from, int64_t n, float* to) {
  for (int64_t j = 0; j < n; j += kLanes) store(to + j, Q::row(from + j / 32 * kBlockBytes<Q>, j % 32 / 16));
}

template <class E>
void widen(const E* from, int64_t n, float* to) {
  for (int64_t j = 0; j < n; j += kLanes) store(to + j, load(from + j));
}

// Row `row` of rows stored one after another, `stride` elements (of block types: bytes) apart; n numbers, in whole vectors.
inline void widen_row(int32_t type, const std::byte* rows, int64_t stride, int64_t row, int64_t n, float* to) {
  const int64_t at = row * stride;
  switch (type) {
    case kF16: return widen(reinterpret_cast<const uint16_t*>(rows) + at, n, to);
    case kBF16: return widen(reinterpret_cast<const BF16*>(rows) + at, n, to);
    case kQ8_0: return widen_blocks<Q8_0>(rows + at, n, to);
    case kQ4_0: return widen_blocks<Q4_0>(rows + at, n, to);
    default: return widen(reinterpret_cast<const float*>(rows) + at, n, to);
  }
}

}  // namespace mill::TM_ISA
