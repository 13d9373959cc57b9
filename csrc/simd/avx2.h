// simd.h for AVX2 + FMA + F16C (x86-64-v3): two registers each.
#pragma once
#include <immintrin.h>

namespace mill::TM_ISA {

struct Floats { __m256 v[2]; };
struct Ints { __m256i v[2]; };
struct Bytes { __m256i v[2]; };

inline constexpr bool kSignedDot = true;  // wide codes are made signed: their offset must not be added again
inline constexpr int kTilePanels = 1, kTileTokens = 4;

#define TM_BOTH(type, expression) \
  type r; \
  for (int i = 0; i < 2; ++i) r.v[i] = expression; \
  return r

TM_INLINE Floats zero_floats() { TM_BOTH(Floats, _mm256_setzero_ps()); }
TM_INLINE Floats load_floats(const float* p) { TM_BOTH(Floats, _mm256_loadu_ps(p + 8 * i)); }
TM_INLINE Floats broadcast(float x) { TM_BOTH(Floats, _mm256_set1_ps(x)); }
TM_INLINE void store(float* p, Floats a) {
  _mm256_storeu_ps(p, a.v[0]);
  _mm256_storeu_ps(p + 8, a.v[1]);
}
TM_INLINE Floats load_first(const float* p, int n) {
  alignas(32) float t[16] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return load_floats(t);
}
TM_INLINE void store_first(float* p, Floats a, int n) {
  alignas(32) float t[16];
  store(t, a);
  for (int i = 0; i < n; ++i) p[i] = t[i];
}
TM_INLINE Floats add(Floats a, Floats b) { TM_BOTH(Floats, _mm256_add_ps(a.v[i], b.v[i])); }
TM_INLINE Floats mul(Floats a, Floats b) { TM_BOTH(Floats, _mm256_mul_ps(a.v[i], b.v[i])); }
TM_INLINE Floats sub(Floats a, Floats b) { TM_BOTH(Floats, _mm256_sub_ps(a.v[i], b.v[i])); }
TM_INLINE Floats fma(Floats a, Floats b, Floats c) { TM_BOTH(Floats, _mm256_fmadd_ps(a.v[i], b.v[i], c.v[i])); }
TM_INLINE Floats fnma(Floats a, Floats b, Floats c) { TM_BOTH(Floats, _mm256_fnmadd_ps(a.v[i], b.v[i], c.v[i])); }
TM_INLINE Floats load_f16(const void* p) {
  TM_BOTH(Floats, _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p) + i)));
}
TM_INLINE Floats load_bf16(const void* p) {
  TM_BOTH(Floats, _mm256_castsi256_ps(_mm256_slli_epi32(
                      _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p) + i)), 16)));
}
// Half of 16 E4M3 bytes 0 .. 0x7E: shifted by 7 they are f16 of 1/256 of the value, subnormals included.
TM_INLINE Floats load_half_e4m3(const void* p) {
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p))), 7);
  const __m128i half[2] = {_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)};
  TM_BOTH(Floats, _mm256_mul_ps(_mm256_cvtph_ps(half[i]), _mm256_set1_ps(128.0f)));
}

TM_INLINE Ints broadcast(int32_t x) { TM_BOTH(Ints, _mm256_set1_epi32(x)); }
TM_INLINE Ints load_ints(const void* p) { TM_BOTH(Ints, _mm256_loadu_si256(static_cast<const __m256i*>(p) + i)); }
TM_INLINE Ints load_u8_ints(const void* p) {
  TM_BOTH(Ints, _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(static_cast<const char*>(p) + 8 * i))));
}
TM_INLINE Ints load_u16_ints(const void* p) {
  TM_BOTH(Ints, _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p) + i)));
}
TM_INLINE Ints load_s8_ints(const void* p) {
  TM_BOTH(Ints, _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(static_cast<const char*>(p) + 8 * i))));
}
TM_INLINE Ints load_s16_ints(const int16_t* p) {
  TM_BOTH(Ints, _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i)));
}
// Two int16 a lane: from 32 bytes; the halves of a lane; two small sums, the second of them times 16, and their
// product with another two, added.
TM_INLINE Ints load_s8_words(const void* p) {
  TM_BOTH(Ints, _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p) + i)));
}
TM_INLINE Ints load_u8_words(const void* p) {
  TM_BOTH(Ints, _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p) + i)));
}
TM_INLINE Ints low_word(Ints a) { TM_BOTH(Ints, _mm256_srai_epi32(_mm256_slli_epi32(a.v[i], 16), 16)); }
TM_INLINE Ints high_word(Ints a) { TM_BOTH(Ints, _mm256_srai_epi32(a.v[i], 16)); }
TM_INLINE Ints dot_words(Ints a, Ints sixteen_b, Ints words) {
  TM_BOTH(Ints, _mm256_madd_epi16(_mm256_blend_epi16(a.v[i], _mm256_slli_epi32(sixteen_b.v[i], 12), 0xAA), words.v[i]));
}
TM_INLINE Ints alternate(int32_t even, int32_t odd) {
  TM_BOTH(Ints, _mm256_set1_epi64x(static_cast<int64_t>(odd) << 32 | static_cast<uint32_t>(even)));
}
TM_INLINE Ints pair_sums(const int16_t* p) {  // of 32
  TM_BOTH(Ints, _mm256_madd_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + i), _mm256_set1_epi16(1)));
}
TM_INLINE Floats load_twice(const float* p) {  // each of 8
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  TM_BOTH(Floats, _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4 * i)), twice));
}
TM_INLINE Ints mul(Ints a, Ints b) { TM_BOTH(Ints, _mm256_mullo_epi32(a.v[i], b.v[i])); }
TM_INLINE Ints add(Ints a, Ints b) { TM_BOTH(Ints, _mm256_add_epi32(a.v[i], b.v[i])); }
TM_INLINE Ints sub(Ints a, Ints b) { TM_BOTH(Ints, _mm256_sub_epi32(a.v[i], b.v[i])); }
TM_INLINE Ints bit_and(Ints a, Ints b) { TM_BOTH(Ints, _mm256_and_si256(a.v[i], b.v[i])); }
TM_INLINE Ints max(Ints a, Ints b) { TM_BOTH(Ints, _mm256_max_epi32(a.v[i], b.v[i])); }
template <int n> TM_INLINE Ints shift_left(Ints a) { TM_BOTH(Ints, _mm256_slli_epi32(a.v[i], n)); }
template <int n> TM_INLINE Ints shift_right(Ints a) { TM_BOTH(Ints, _mm256_srli_epi32(a.v[i], n)); }
template <int n> TM_INLINE Ints shift_down(Ints a) { TM_BOTH(Ints, _mm256_srai_epi32(a.v[i], n)); }  // keeps the sign
TM_INLINE Ints shift_right(Ints a, int n) { TM_BOTH(Ints, _mm256_srli_epi32(a.v[i], n)); }
TM_INLINE Floats to_floats(Ints a) { TM_BOTH(Floats, _mm256_cvtepi32_ps(a.v[i])); }
// By as many bits as *n says, and the low four bits of each lane as floats.
TM_INLINE Ints shift_right(Ints a, const int32_t* n) { TM_BOTH(Ints, _mm256_srlv_epi32(a.v[i], _mm256_set1_epi32(*n))); }
TM_INLINE Floats low_nibbles(Ints a) {
  TM_BOTH(Floats, _mm256_cvtepi32_ps(_mm256_and_si256(a.v[i], _mm256_set1_epi32(15))));
}
// 2 n + 1 of n, the low four or three bits of each lane.
TM_INLINE Floats odd_of_four(Ints a) { return add(mul(low_nibbles(a), broadcast(2.0f)), broadcast(1.0f)); }
TM_INLINE Floats odd_of_three(Ints a) { return odd_of_four(bit_and(a, broadcast(7))); }
TM_INLINE Ints bits(Floats a) { TM_BOTH(Ints, _mm256_castps_si256(a.v[i])); }
TM_INLINE Floats from_bits(Ints a) { TM_BOTH(Floats, _mm256_castsi256_ps(a.v[i])); }
TM_INLINE Ints round_even(Floats a) { TM_BOTH(Ints, _mm256_cvtps_epi32(a.v[i])); }
TM_INLINE int32_t largest(Ints a) {
  __m256i m = _mm256_max_epi32(a.v[0], a.v[1]);
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xB1));
  return _mm_cvtsi128_si32(h);
}
TM_INLINE float total(Floats a) {  // lanes i + i+8, then + 4, + 2, + 1: one tree in every set
  const __m256 h = _mm256_add_ps(a.v[0], a.v[1]);
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
TM_INLINE int32_t total(Ints a) {
  __m256i m = _mm256_add_epi32(a.v[0], a.v[1]);
  __m128i h = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0xB1));
  return _mm_cvtsi128_si32(h);
}
TM_INLINE void store_s8(int8_t* p, Ints a) {
  __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.v[0], a.v[1]), 0xD8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}

TM_INLINE void store_s16(int16_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(_mm256_packs_epi32(a.v[0], a.v[1]), 0xD8));
}

TM_INLINE Bytes load_bytes(const void* p) { TM_BOTH(Bytes, _mm256_loadu_si256(static_cast<const __m256i*>(p) + i)); }
TM_INLINE void store(void* p, Bytes a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), a.v[0]);
  _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, a.v[1]);
}
TM_INLINE Bytes broadcast_byte(int x) { TM_BOTH(Bytes, _mm256_set1_epi8(static_cast<char>(x))); }
TM_INLINE Bytes as_bytes(Ints a) { TM_BOTH(Bytes, a.v[i]); }
// Whether a byte is below n > 0.
TM_INLINE bool any_below(Bytes a, int n) {
  const __m256i most = _mm256_set1_epi8(static_cast<char>(n - 1)), least = _mm256_min_epu8(a.v[0], a.v[1]);
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(least, most), least)) != 0;
}
TM_INLINE Bytes add(Bytes a, Bytes b) { TM_BOTH(Bytes, _mm256_add_epi8(a.v[i], b.v[i])); }
TM_INLINE Bytes times(Bytes a, Ints n) {  // the four bytes of a lane times its number, modulo 256
  const __m256i byte = _mm256_set1_epi16(255);
  Bytes r;
  for (int i = 0; i < 2; ++i) {
    const __m256i both = _mm256_blend_epi16(n.v[i], _mm256_slli_epi32(n.v[i], 16), 0xAA);
    const __m256i even = _mm256_mullo_epi16(a.v[i], both), odd = _mm256_mullo_epi16(_mm256_srli_epi16(a.v[i], 8), both);
    r.v[i] = _mm256_or_si256(_mm256_and_si256(even, byte), _mm256_slli_epi16(odd, 8));
  }
  return r;
}
// Where a byte taken as a fraction of 256 lies: 0, 1 or 2 thirds, rounded down.
TM_INLINE Bytes thirds(Bytes a) {
  const auto least = [](__m256i x, int n) TM_LAMBDA {  // -1 where x >= n
    return _mm256_cmpeq_epi8(_mm256_max_epu8(x, _mm256_set1_epi8(static_cast<char>(n))), x);
  };
  TM_BOTH(Bytes, _mm256_sub_epi8(_mm256_abs_epi8(least(a.v[i], 86)), least(a.v[i], 171)));
}
TM_INLINE Bytes bit_and(Bytes a, Bytes b) { TM_BOTH(Bytes, _mm256_and_si256(a.v[i], b.v[i])); }
template <int n> TM_INLINE Bytes shift_left(Bytes a) { TM_BOTH(Bytes, _mm256_slli_epi16(a.v[i], n)); }
template <int n> TM_INLINE Bytes shift_right(Bytes a) { TM_BOTH(Bytes, _mm256_srli_epi16(a.v[i], n)); }
template <int n, int mask> TM_INLINE Bytes shift_right_and(Bytes a) {  // in each byte
  if constexpr (n == 0) return bit_and(a, broadcast_byte(mask));
  else return bit_and(shift_right<n>(a), broadcast_byte(mask));
}
TM_INLINE Bytes and_or(Bytes a, Bytes mask, Bytes b) {
  TM_BOTH(Bytes, _mm256_or_si256(_mm256_and_si256(a.v[i], mask.v[i]), b.v[i]));
}
TM_INLINE Bytes table16(const void* p) {
  TM_BOTH(Bytes, _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
// By the low four bits of each byte, whatever is above them.
TM_INLINE Bytes look_up_nibble(Bytes table, Bytes raw) {
  TM_BOTH(Bytes, _mm256_shuffle_epi8(table.v[i], _mm256_and_si256(raw.v[i], _mm256_set1_epi8(15))));
}
// Four bytes from base + offset, in each of 16 lanes.
TM_INLINE Bytes gather(const int8_t* base, Ints offset) {
  TM_BOTH(Bytes, _mm256_i32gather_epi32(reinterpret_cast<const int*>(base), offset.v[i], 1));
}
TM_INLINE void gather_pair(const int8_t* base, Ints offset, Bytes* first, Bytes* last) {
  *first = gather(base, offset);
  *last = gather(base + 4, offset);
}

// maddubs saturates at 16 bits: exact for codes up to 127 (2 x 127 x 127 < 2^15). Wide codes become
// signed (code - 128) and go through |w| x sign(w) a, exact too since |w| <= 128 and |a| <= 127.
template <bool kWide> TM_INLINE Ints dot(Ints acc, Bytes codes, int32_t x) {
  const __m256i a = _mm256_set1_epi32(x), one = _mm256_set1_epi16(1);
  Ints r;
  for (int i = 0; i < 2; ++i) {
    __m256i u = codes.v[i], s = a;
    if constexpr (kWide) {
      u = _mm256_xor_si256(u, _mm256_set1_epi8(static_cast<char>(0x80)));
      s = _mm256_sign_epi8(a, u);
      u = _mm256_abs_epi8(u);
    }
    r.v[i] = _mm256_add_epi32(acc.v[i], _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), one));
  }
  return r;
}
template <bool kWide> TM_INLINE Ints dot_at(Ints acc, Bytes codes, const int8_t* x) {
  int32_t a;
  std::memcpy(&a, x, 4);
  return dot<kWide>(acc, codes, a);
}

// acc + sum over 2 of 16-bit codes x activations, one int32 for each row.
TM_INLINE Ints dot_words(Ints acc, Ints codes, int32_t x) {
  TM_BOTH(Ints, _mm256_add_epi32(acc.v[i], _mm256_madd_epi16(codes.v[i], _mm256_set1_epi32(x))));
}

TM_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
TM_INLINE void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }  // to L2
#undef TM_BOTH

}  // namespace mill::TM_ISA
