// Products of codes and sixteen-bit integers, exact in 32 bits: a line (64 bytes: 4 inputs of 16 rows, u8) times 4 inputs.
//
// n sixteen-bit inputs take 2n bytes, laid out as the set's dot wants them: AVX2 as they are, the others as n high and n low
// bytes, x = 256·high + low with both signed, so |x| ≤ 32512. A line counts its codes from 0 (`kLineBias` = 0) or, where
// the dot takes signed bytes, wide ones from −128.
#pragma once

#include "simd/simd.h"

namespace mill::TM_ISA {

#if defined(__AVX2__) && !defined(__AVX512F__)

constexpr int kWideQ = 2, kWideV = 1;  // the register block: rows of inputs, lines
constexpr int kWordsQ = 4, kWordsV = 1;  // the same where lines are sixteen-bit integers
constexpr int32_t kLineBias = 0;

struct Line { __m256i v[4]; };  // sixteen bits a code
struct Quad { __m256i v; };
struct Sums { __m256i v[4]; };  // two for each row

TM_INLINE Line widened(const __m256i (&bytes)[2]) {
  Line r;
  for (int i = 0; i < 4; ++i)
    r.v[i] = _mm256_cvtepu8_epi16(i % 2 ? _mm256_extracti128_si256(bytes[i / 2], 1) : _mm256_castsi256_si128(bytes[i / 2]));
  return r;
}
TM_INLINE Line load_line(const std::byte* p) { return widened(load_bytes(p).v); }
TM_INLINE Line load_low(const std::byte* p) { return widened(bit_and(load_bytes(p), broadcast_byte(15)).v); }
TM_INLINE Line load_high(const std::byte* p) { return widened(bit_and(shift_right<4>(load_bytes(p)), broadcast_byte(15)).v); }

TM_INLINE void store_wide(std::byte* p, int64_t, int64_t at, Ints x) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.v[0], x.v[1]), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 2 * at), packed);
}
TM_INLINE Quad load_quad(const std::byte* p, int64_t, int64_t quad) {
  int64_t four;
  std::memcpy(&four, p + 8 * quad, 8);
  return {_mm256_set1_epi64x(four)};
}
TM_INLINE Sums start_sums(int32_t from) {
  const __m256i first = _mm256_set1_epi64x(static_cast<uint32_t>(from));
  return {{first, first, first, first}};
}
TM_INLINE void add_dot(Sums& acc, const Line& line, Quad x) {
  for (int i = 0; i < 4; ++i) acc.v[i] = _mm256_add_epi32(acc.v[i], _mm256_madd_epi16(line.v[i], x.v));
}
TM_INLINE Ints total(Sums a) {
  return {_mm256_permute4x64_epi64(_mm256_hadd_epi32(a.v[0], a.v[1]), 0xD8),
          _mm256_permute4x64_epi64(_mm256_hadd_epi32(a.v[2], a.v[3]), 0xD8)};
}
// Sixteen-bit integers, two a lane: acc + line · x; 32 numbers stored, and where pair i of them lies.
TM_INLINE void add_words(Ints& acc, Ints line, Ints x) {
  for (int i = 0; i < 2; ++i) acc.v[i] = _mm256_add_epi32(acc.v[i], _mm256_madd_epi16(line.v[i], x.v[i]));
}
TM_INLINE void store_words(int16_t* p, Ints a, Ints b) {
  store_s16(p, a);
  store_s16(p + 16, b);
}
TM_INLINE int64_t word_place(int64_t i) { return i; }

#else

struct Line { Bytes v; };
struct Sums { Ints high, low; };
TM_INLINE Sums start_sums(int32_t from) { return {broadcast(0), broadcast(from)}; }
TM_INLINE Ints total(Sums a) { return add(shift_left<8>(a.high), a.low); }
TM_INLINE Line load_low(const std::byte* p) { return {bit_and(load_bytes(p), broadcast_byte(15))}; }
TM_INLINE Line load_high(const std::byte* p) { return {bit_and(shift_right<4>(load_bytes(p)), broadcast_byte(15))}; }

#if defined(__AVX512F__)

constexpr int kWideQ = 6, kWideV = 2;
constexpr int kWordsQ = 6, kWordsV = 4;
constexpr int32_t kLineBias = 0;

struct Quad { __m512i high, low; };

TM_INLINE Line load_line(const std::byte* p) { return {load_bytes(p)}; }
TM_INLINE void store_wide(std::byte* p, int64_t n, int64_t at, Ints x) {
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(x.v, _mm512_set1_epi32(128)), 8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + at), _mm512_cvtepi32_epi8(high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + n + at), _mm512_cvtepi32_epi8(x.v));
}
// The first 64 inputs of a row at once. Packing leaves quad k·4 + i at place i·4 + k.
TM_INLINE void store_wide(std::byte* p, int64_t n, const Ints (&x)[4]) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i a = _mm512_packs_epi32(x[0].v, x[1].v), b = _mm512_packs_epi32(x[2].v, x[3].v);
  const __m512i half = _mm512_set1_epi16(128), byte = _mm512_set1_epi16(255);
  const __m512i high = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8),
                                          _mm512_srai_epi16(_mm512_add_epi16(b, half), 8));
  const __m512i low = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
  _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, high));
  _mm512_storeu_si512(p + n, _mm512_permutexvar_epi32(order, low));
}
TM_INLINE Quad load_quad(const std::byte* p, int64_t n, int64_t quad) {
  return {_mm512_set1_epi32(load_i32(p + 4 * quad)), _mm512_set1_epi32(load_i32(p + n + 4 * quad))};
}
// gcc 12 copies and spills the sums of the intrinsic.
TM_INLINE void add_dot(Ints& acc, const Line& line, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(line.v.v), "v"(x));
}
TM_INLINE void add_dot(Sums& acc, const Line& line, const Quad& x) {
  add_dot(acc.high, line, x.high);
  add_dot(acc.low, line, x.low);
}
TM_INLINE void add_words(Ints& acc, Ints line, Ints x) {
  asm("vpdpwssd %2, %1, %0" : "+v"(acc.v) : "v"(line.v), "v"(x.v));
}
// 32 numbers, in pairs; where pair i of all that are stored one after another lies. Packing works within 128 bits. At most 64 numbers.
TM_INLINE void store_words(int16_t* p, Ints a, Ints b) { _mm512_storeu_si512(p, _mm512_packs_epi32(a.v, b.v)); }
TM_INLINE int64_t word_place(int64_t i) {
  static constexpr uint8_t kPlace[32] = {0,  1,  4,  5,  8,  9,  12, 13, 2,  3,  6,  7,  10, 11, 14, 15,
                                         16, 17, 20, 21, 24, 25, 28, 29, 18, 19, 22, 23, 26, 27, 30, 31};
  return kPlace[i];
}

#else

constexpr int kWideQ = 2, kWideV = 1;
constexpr int kWordsQ = 4, kWordsV = 1;
constexpr int32_t kLineBias = 128;

struct Quad { int32_t high, low; };

TM_INLINE Line load_line(const std::byte* p) {
  Line r = {load_bytes(p)};
  for (auto& part : r.v.v) part = veorq_u8(part, vdupq_n_u8(0x80));
  return r;
}
TM_INLINE void store_wide(std::byte* p, int64_t n, int64_t at, Ints x) {
  int32_t all[16];
  for (int i = 0; i < 4; ++i) vst1q_s32(all + 4 * i, x.v[i]);
  for (int i = 0; i < 16; ++i) {
    p[at + i] = static_cast<std::byte>((all[i] + 128) >> 8);
    p[n + at + i] = static_cast<std::byte>(all[i]);
  }
}
TM_INLINE Quad load_quad(const std::byte* p, int64_t n, int64_t quad) { return {load_i32(p + 4 * quad), load_i32(p + n + 4 * quad)}; }
TM_INLINE void add_dot(Sums& acc, const Line& line, Quad x) {
  acc = {dot<false>(acc.high, line.v, x.high), dot<false>(acc.low, line.v, x.low)};
}
TM_INLINE void add_words(Ints& acc, Ints line, Ints x) { acc = dot_words(acc, line, vgetq_lane_s32(x.v[0], 0)); }
TM_INLINE void store_words(int16_t* p, Ints a, Ints b) {
  store_s16(p, a);
  store_s16(p + 16, b);
}
TM_INLINE int64_t word_place(int64_t i) { return i; }

#endif
#endif

#if !defined(__AVX512F__)
TM_INLINE void store_wide(std::byte* p, int64_t n, const Ints (&x)[4]) {
  for (int v = 0; v < 4; ++v) store_wide(p, n, 16 * v, x[v]);
}
#endif

}  // namespace mill::TM_ISA
