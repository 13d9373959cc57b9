// F16, BF16 as 16-bit codes: of each 64 inputs of a row one scale, so that products are exact integer sums (linear.h).
//
//   front of 16 rows   | inputs 0..63: scales of rows 0..15, bf16 | inputs 64..127: ... |
//   panel of 16 rows   for each 2 inputs a line of 64 bytes: | row 0: inputs 0, 1 | row 1: inputs 0, 1 | ... int16
//
// A row is padded with zeros to whole 64 inputs. As many bits a weight as in the file, and a quarter for the scale.
#pragma once
#include <cmath>

#include "linear/format.h"

namespace mill::TM_ISA::linear {

// Codes of 64 inputs, of weights or activations, may be as long as kLongest as a vector: then no sum of products of two
// such vectors, nor any part of it, exceeds kLongest^2 < 2^31. (Rounding adds half a code to each: 4 to the length.)
inline constexpr float kLongest = 46000.0f, kLargest = 32767.0f;
static_assert(static_cast<int64_t>(kLongest + 8) * static_cast<int64_t>(kLongest + 8) < INT64_C(1) << 31);
inline constexpr int kVectors = kWordInputs / 16;

// The scale of 64 inputs: the largest is found on the bits, where a NaN is largest of all and so reaches every output.
// Squares are of x / max |x|, added lane by lane in four fma, then by the tree of `total`. Below 1e-30 all is zero.
TM_INLINE float word_scale(const Floats (&x)[kVectors]) {
  Ints most = broadcast(0);
  for (const Floats& v : x) most = max(most, bit_and(bits(v), broadcast(static_cast<int32_t>(0x7fffffff))));
  const float largest_value = __builtin_bit_cast(float, largest(most));
  if (largest_value < 1e-30f) return 0.0f;
  const Floats inverse = broadcast(1.0f / largest_value);
  Floats squares = zero_floats();
  for (const Floats& v : x) squares = fma(mul(v, inverse), mul(v, inverse), squares);
  const float length = std::sqrt(total(squares)) / kLongest;
  return largest_value * (length < 1.0f / kLargest ? 1.0f / kLargest : length);
}

TM_INLINE void word_codes(const Floats (&x)[kVectors], float scale, int16_t* codes) {
  const Floats inverse = broadcast(scale == 0.0f ? 0.0f : 1.0f / scale);
  for (int i = 0; i < kVectors; ++i) store_s16(codes + 16 * i, round_even(mul(x[i], inverse)));
}

// Up to 64 inputs of a row, followed by zeros.
TM_INLINE void load_padded(const float* x, int64_t n, Floats (&v)[kVectors]) {
  for (int i = 0; i < kVectors; ++i) {
    const int64_t left = n - 16 * i;
    v[i] = left >= 16 ? load_floats(x + 16 * i) : left > 0 ? load_first(x + 16 * i, static_cast<int>(left)) : zero_floats();
  }
}

struct F16 {
  static TM_INLINE Floats load(const uint16_t* p) { return load_f16(p); }
};
struct BF16 {
  static TM_INLINE Floats load(const uint16_t* p) { return load_bf16(p); }
};

inline constexpr Geometry kWordGeometry = {1, 2, kWordInputs, kWordInputs * 32, 32};

// The scale is rounded up to a bf16, so that codes grow no longer; one that is no number stays none, whatever its bits.
TM_INLINE uint32_t rounded_up(float scale) {
  return std::isnan(scale) ? 0x7fc00000u : (__builtin_bit_cast(uint32_t, scale) + 0xffff) & 0xffff0000;
}

template <class F> void pack_word_block(const uint8_t* row, int64_t n, uint16_t* scale, int16_t* codes) {
  alignas(64) uint16_t padded[kWordInputs] = {};
  std::memcpy(padded, row, static_cast<size_t>(2 * n));
  Floats x[kVectors];
  for (int i = 0; i < kVectors; ++i) x[i] = F::load(padded + 16 * i);
  const uint32_t up = rounded_up(word_scale(x));
  *scale = static_cast<uint16_t>(up >> 16);
  word_codes(x, __builtin_bit_cast(float, up), codes);
}

template <class F> void pack_words(const uint8_t* const rows[16], int64_t columns, uint8_t* panel) {
  const int64_t front = front_bytes(kWordGeometry, columns), n = ceil_div(columns, kWordInputs);
  std::memset(panel, 0, static_cast<size_t>(front));
  for (int64_t b = 0; b < n; ++b) {
    auto* scale = reinterpret_cast<uint16_t*>(panel + b * kWordGeometry.front);
    auto* lines = reinterpret_cast<int16_t*>(panel + front + b * kWordGeometry.bytes);
    const int64_t left = columns - b * kWordInputs;
    for (int r = 0; r < 16; ++r) {
      alignas(64) int16_t codes[kWordInputs];
      pack_word_block<F>(rows[r] + 2 * b * kWordInputs, left < kWordInputs ? left : kWordInputs, scale + r, codes);
      for (int k = 0; k < kWordInputs; k += 2) std::memcpy(lines + 16 * k + 2 * r, codes + k, 4);
    }
  }
}

inline void decode_word_row(const uint8_t* panel, int row, int64_t columns, float* out) {
  const auto* codes = reinterpret_cast<const int16_t*>(panel + front_bytes(kWordGeometry, columns));
  alignas(64) float scale[16];
  for (int64_t k = 0; k < columns; ++k) {
    if (k % kWordInputs == 0) store(scale, load_bf16(panel + k / kWordInputs * kWordGeometry.front));
    out[k] = static_cast<float>(codes[k / 2 * 32 + 2 * row + k % 2]) * scale[row];
  }
}

}  // namespace mill::TM_ISA::linear
