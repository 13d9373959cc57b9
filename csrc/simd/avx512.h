// simd.h for AVX-512 (F, BW, DQ, VL, VNNI, VBMI) and GFNI: one register each.
#pragma once
#include <immintrin.h>

namespace mill::TM_ISA {

struct Floats { __m512 v; };
struct Ints { __m512i v; };
struct Bytes { __m512i v; };

inline constexpr bool kSignedDot = false;  // the dot takes u8 codes of any size
inline constexpr int kTilePanels = 2, kTileTokens = 6;  // the register block of a GEMM

TM_INLINE Floats zero_floats() { return {_mm512_setzero_ps()}; }
TM_INLINE Floats load_floats(const float* p) { return {_mm512_loadu_ps(p)}; }
TM_INLINE Floats broadcast(float x) { return {_mm512_set1_ps(x)}; }
TM_INLINE void store(float* p, Floats a) { _mm512_storeu_ps(p, a.v); }
TM_INLINE Floats load_first(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p)};
}
TM_INLINE void store_first(float* p, Floats a, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), a.v);
}
TM_INLINE Floats add(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
TM_INLINE Floats mul(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
TM_INLINE Floats sub(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
TM_INLINE Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TM_INLINE Floats fnma(Floats a, Floats b, Floats c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a b
TM_INLINE Floats load_f16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
TM_INLINE Floats load_bf16(const void* p) {
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16))};
}
// Half of 16 E4M3 bytes 0 .. 0x7E: shifted by 7 they are f16 of 1/256 of the value, subnormals included.
TM_INLINE Floats load_half_e4m3(const void* p) {
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {_mm512_mul_ps(_mm512_cvtph_ps(_mm256_slli_epi16(wide, 7)), _mm512_set1_ps(128.0f))};
}

TM_INLINE Ints broadcast(int32_t x) { return {_mm512_set1_epi32(x)}; }
TM_INLINE Ints load_ints(const void* p) { return {_mm512_loadu_si512(p)}; }
TM_INLINE Ints load_u8_ints(const void* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
TM_INLINE Ints load_u16_ints(const void* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
TM_INLINE Ints load_s8_ints(const void* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
TM_INLINE Ints load_s16_ints(const int16_t* p) {
  return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Two int16 a lane: from 32 bytes; the halves of a lane; two small sums, the second of them times 16, and their
// product with another two, added.
TM_INLINE Ints load_s8_words(const void* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
TM_INLINE Ints load_u8_words(const void* p) {
  return {_mm512_cvtepu8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
TM_INLINE Ints low_word(Ints a) { return {_mm512_srai_epi32(_mm512_slli_epi32(a.v, 16), 16)}; }
TM_INLINE Ints high_word(Ints a) { return {_mm512_srai_epi32(a.v, 16)}; }
TM_INLINE Ints dot_words(Ints a, Ints sixteen_b, Ints words) {
  const __m512i both = _mm512_ternarylogic_epi32(a.v, _mm512_set1_epi32(0xFFFF), _mm512_slli_epi32(sixteen_b.v, 12), 0xEA);
  return {_mm512_madd_epi16(both, words.v)};
}
TM_INLINE Ints alternate(int32_t even, int32_t odd) {
  return {_mm512_set1_epi64(static_cast<int64_t>(odd) << 32 | static_cast<uint32_t>(even))};
}
TM_INLINE Ints pair_sums(const int16_t* p) {  // of 32
  return {_mm512_madd_epi16(_mm512_loadu_si512(p), _mm512_set1_epi16(1))};
}
TM_INLINE Floats load_twice(const float* p) {  // each of 8
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return {_mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)))};
}
TM_INLINE Ints mul(Ints a, Ints b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
TM_INLINE Ints add(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
TM_INLINE Ints sub(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
TM_INLINE Ints bit_and(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
TM_INLINE Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <int n> TM_INLINE Ints shift_left(Ints a) { return {_mm512_slli_epi32(a.v, n)}; }
template <int n> TM_INLINE Ints shift_right(Ints a) { return {_mm512_srli_epi32(a.v, n)}; }
template <int n> TM_INLINE Ints shift_down(Ints a) { return {_mm512_srai_epi32(a.v, n)}; }  // keeps the sign
TM_INLINE Ints shift_right(Ints a, int n) { return {_mm512_srli_epi32(a.v, static_cast<unsigned>(n))}; }
TM_INLINE Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
// By as many bits as *n says, and the low four bits of each lane as floats.
TM_INLINE Ints shift_right(Ints a, const int32_t* n) { return {_mm512_srlv_epi32(a.v, _mm512_set1_epi32(*n))}; }
TM_INLINE Floats low_nibbles(Ints a) {
  return {_mm512_permutexvar_ps(a.v, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))};
}
// 2 n + 1 of n, the low four or three bits of each lane.
TM_INLINE Floats odd_of_four(Ints a) {
  return {_mm512_permutexvar_ps(a.v, _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))};
}
TM_INLINE Floats odd_of_three(Ints a) {
  return {_mm512_permutexvar_ps(a.v, _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15))};
}
TM_INLINE Ints bits(Floats a) { return {_mm512_castps_si512(a.v)}; }
TM_INLINE Floats from_bits(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
TM_INLINE Ints round_even(Floats a) { return {_mm512_cvtps_epi32(a.v)}; }
TM_INLINE int32_t largest(Ints a) { return _mm512_reduce_max_epi32(a.v); }
TM_INLINE float total(Floats a) {  // lanes i + i+8, then + 4, + 2, + 1: one tree in every set
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
TM_INLINE int32_t total(Ints a) { return _mm512_reduce_add_epi32(a.v); }
TM_INLINE void store_s8(int8_t* p, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
}

TM_INLINE void store_s16(int16_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(a.v));
}

TM_INLINE Bytes load_bytes(const void* p) { return {_mm512_loadu_si512(p)}; }
TM_INLINE void store(void* p, Bytes a) { _mm512_storeu_si512(p, a.v); }
TM_INLINE Bytes broadcast_byte(int x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
TM_INLINE Bytes as_bytes(Ints a) { return {a.v}; }
// Whether a byte is below n > 0.
TM_INLINE bool any_below(Bytes a, int n) {
  return _mm512_cmplt_epu8_mask(a.v, _mm512_set1_epi8(static_cast<char>(n))) != 0;
}
TM_INLINE Bytes add(Bytes a, Bytes b) { return {_mm512_add_epi8(a.v, b.v)}; }
TM_INLINE Bytes times(Bytes a, Ints n) {  // the four bytes of a lane times its number, modulo 256
  const __m512i low = _mm512_set1_epi32(0xFFFF), byte = _mm512_set1_epi16(255);
  const __m512i both = _mm512_ternarylogic_epi32(n.v, low, _mm512_slli_epi32(n.v, 16), 0xEA);
  const __m512i even = _mm512_mullo_epi16(a.v, both), odd = _mm512_mullo_epi16(_mm512_srli_epi16(a.v, 8), both);
  return {_mm512_ternarylogic_epi32(even, byte, _mm512_slli_epi16(odd, 8), 0xEA)};
}
// Where a byte taken as a fraction of 256 lies: 0, 1 or 2 thirds, rounded down.
TM_INLINE Bytes thirds(Bytes a) {
  const __m512i one = _mm512_set1_epi8(1);
  const __m512i first = _mm512_maskz_mov_epi8(_mm512_cmpgt_epu8_mask(a.v, _mm512_set1_epi8(85)), one);
  return {_mm512_mask_add_epi8(first, _mm512_cmpgt_epu8_mask(a.v, _mm512_set1_epi8(-86)), first, one)};
}
TM_INLINE Bytes bit_and(Bytes a, Bytes b) { return {_mm512_and_si512(a.v, b.v)}; }
template <int n> TM_INLINE Bytes shift_left(Bytes a) { return {_mm512_slli_epi16(a.v, n)}; }   // of 16 bits: mask after
template <int n> TM_INLINE Bytes shift_right(Bytes a) { return {_mm512_srli_epi16(a.v, n)}; }  // of 16 bits: mask after
// (a >> n) & mask in each byte, as one product with a matrix of bits: its byte 7 - i says which bits make up bit i.
template <int n, int mask> TM_INLINE Bytes shift_right_and(Bytes a) {
  if constexpr (n == 0) return bit_and(a, broadcast_byte(mask));
  constexpr auto matrix = [] {
    uint64_t rows = 0;
    for (int i = 0; i + n < 8; ++i)
      if (mask >> i & 1) rows |= uint64_t{1} << (8 * (7 - i) + i + n);
    return static_cast<int64_t>(rows);
  }();
  return {_mm512_gf2p8affine_epi64_epi8(a.v, _mm512_set1_epi64(matrix), 0)};
}
// (a & mask) | b, and the 16-entry table (broadcast in each 128 bits) looked up by bytes 0..15.
TM_INLINE Bytes and_or(Bytes a, Bytes mask, Bytes b) {
  return {_mm512_ternarylogic_epi32(a.v, mask.v, b.v, 0xEA)};
}
TM_INLINE Bytes table16(const void* p) { return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)))}; }
// By the low four bits of each byte, whatever is above them.
TM_INLINE Bytes look_up_nibble(Bytes table, Bytes raw) { return {_mm512_permutexvar_epi8(raw.v, table.v)}; }
// Four bytes from base + offset, in each of 16 lanes.
TM_INLINE Bytes gather(const int8_t* base, Ints offset) { return {_mm512_i32gather_epi32(offset.v, base, 1)}; }
// Eight bytes from each: the first four of all lanes, and the last four.
TM_INLINE void gather_pair(const int8_t* base, Ints offset, Bytes* first, Bytes* last) {
  const __m512i low = _mm512_i32gather_epi64(_mm512_castsi512_si256(offset.v), base, 1);
  const __m512i high = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(offset.v, 1), base, 1);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *first = {_mm512_permutex2var_epi32(low, even, high)};
  *last = {_mm512_permutex2var_epi32(low, _mm512_or_si512(even, _mm512_set1_epi32(1)), high)};
}

// acc + sum over 4 of codes x activations, one int32 for each row. `kWide`: codes above 127 occur.
template <bool kWide> TM_INLINE Ints dot(Ints acc, Bytes codes, int32_t x) {
  return {_mm512_dpbusd_epi32(acc.v, codes.v, _mm512_set1_epi32(x))};
}
// The same with 4 activations in memory: gcc 12 does not fold this broadcast into the instruction by itself.
template <bool kWide> TM_INLINE Ints dot_at(Ints acc, Bytes codes, const int8_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(codes.v), "m"(*reinterpret_cast<const int32_t*>(x)));
  return acc;
}

// The same, in the order of the source: sixteen sums side by side wait for one another as the compiler would mix them.
TM_INLINE Ints dot_in_order(Ints acc, Bytes codes, const int8_t* x) {
  asm volatile("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(codes.v), "m"(*reinterpret_cast<const int32_t*>(x)));
  return acc;
}

// acc + sum over 2 of 16-bit codes x activations, one int32 for each row.
TM_INLINE Ints dot_words(Ints acc, Ints codes, int32_t x) {
  return {_mm512_dpwssd_epi32(acc.v, codes.v, _mm512_set1_epi32(x))};
}

TM_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
TM_INLINE void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }  // to L2

}  // namespace mill::TM_ISA
