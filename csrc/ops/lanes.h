// Sixteen float32 lanes: one AVX-512 register, two AVX2 registers, or sixteen floats that the compiler maps to NEON.
//
// Every operation rounds once and alike on all of them, and sums of lanes have one fixed tree, so a kernel written in
// lanes gives the same bits whatever it was compiled for. Include only from files compiled once per instruction set.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef TM_ISA
#error "compiled once per instruction set: define TM_ISA"
#endif

namespace mill::TM_ISA {

constexpr int kLanes = 16;

#if defined(__AVX512F__)

struct Lanes {
  __m512 v;
};
using Mask = __mmask16;

inline Lanes splat(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline Lanes load(const float* p, int n) { return {_mm512_maskz_loadu_ps((1u << n) - 1, p)}; }
inline void store(float* p, Lanes a, int n) { _mm512_mask_storeu_ps(p, (1u << n) - 1, a.v); }
inline Lanes load(const uint16_t* p) {  // float16
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store(uint16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Lanes sqrt(Lanes a) { return {_mm512_sqrt_ps(a.v)}; }
inline Lanes round(Lanes a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Lanes floor(Lanes a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
inline Lanes abs(Lanes a) { return {_mm512_abs_ps(a.v)}; }
inline Lanes copysign(Lanes a, Lanes sign) {
  const __m512i bit = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_andnot_si512(bit, _mm512_castps_si512(a.v)),
                                              _mm512_and_si512(bit, _mm512_castps_si512(sign.v))))};
}
inline Mask less(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
inline Mask differs(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ); }
inline Mask mask_bits(uint32_t bits) { return static_cast<Mask>(bits); }
inline uint32_t bits_of(Mask m) { return m; }
inline Lanes select(Mask m, Lanes yes, Lanes no) { return {_mm512_mask_blend_ps(m, no.v, yes.v)}; }
// a · 2^n for whole n in −150…128, rounded once.
inline Lanes times_any_power(Lanes a, Lanes n) { return {_mm512_scalef_ps(a.v, n.v)}; }

// x − ⌊x⌋ rounded down, which matters just below 0, and a · 2^⌊x⌋ where neither a nor the result is denormal.
inline Lanes above_floor(Lanes x) { return {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
inline Lanes times_floor_power(Lanes a, Lanes x) { return {_mm512_scalef_ps(a.v, x.v)}; }

#elif defined(__AVX2__)

struct Lanes {
  __m256 a, b;
};
struct Mask {
  __m256 a, b;
};

inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Lanes splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Lanes v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
inline Lanes load(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n)), _mm256_maskload_ps(p + 8, first_lanes(n - 8))};
}
inline void store(float* p, Lanes v, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), v.a);
  _mm256_maskstore_ps(p + 8, first_lanes(n - 8), v.b);
}
inline Lanes load(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void store(uint16_t* p, Lanes v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
#define TM_TWICE(expr_a, expr_b) {expr_a, expr_b}
inline Lanes fma(Lanes x, Lanes y, Lanes z) {
  return TM_TWICE(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
inline Lanes operator+(Lanes x, Lanes y) { return TM_TWICE(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
inline Lanes operator-(Lanes x, Lanes y) { return TM_TWICE(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
inline Lanes operator*(Lanes x, Lanes y) { return TM_TWICE(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
inline Lanes operator/(Lanes x, Lanes y) { return TM_TWICE(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
inline Lanes max(Lanes x, Lanes y) { return TM_TWICE(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
inline Lanes min(Lanes x, Lanes y) { return TM_TWICE(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
inline Lanes sqrt(Lanes x) { return TM_TWICE(_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)); }
inline Lanes round(Lanes x) {
  constexpr int kNear = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return TM_TWICE(_mm256_round_ps(x.a, kNear), _mm256_round_ps(x.b, kNear));
}
inline Lanes floor(Lanes x) { return TM_TWICE(_mm256_floor_ps(x.a), _mm256_floor_ps(x.b)); }
inline Lanes abs(Lanes x) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return TM_TWICE(_mm256_andnot_ps(bit, x.a), _mm256_andnot_ps(bit, x.b));
}
inline Lanes copysign(Lanes x, Lanes s) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return TM_TWICE(_mm256_or_ps(_mm256_andnot_ps(bit, x.a), _mm256_and_ps(bit, s.a)),
                  _mm256_or_ps(_mm256_andnot_ps(bit, x.b), _mm256_and_ps(bit, s.b)));
}
inline Mask less(Lanes x, Lanes y) {
  return TM_TWICE(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
inline Mask differs(Lanes x, Lanes y) {
  return TM_TWICE(_mm256_cmp_ps(x.a, y.a, _CMP_NEQ_UQ), _mm256_cmp_ps(x.b, y.b, _CMP_NEQ_UQ));
}
inline __m256 spread_bits(uint32_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i some = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(some, lane));
}
inline Mask mask_bits(uint32_t bits) { return TM_TWICE(spread_bits(bits), spread_bits(bits >> 8)); }
inline uint32_t bits_of(Mask m) { return static_cast<uint32_t>(_mm256_movemask_ps(m.a) | _mm256_movemask_ps(m.b) << 8); }
inline Lanes select(Mask m, Lanes yes, Lanes no) {
  return TM_TWICE(_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b));
}
inline __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline Lanes power_of_two(Lanes n) { return TM_TWICE(power_of_two(n.a), power_of_two(n.b)); }
inline __m256 times_power(__m256 a, __m256 n) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}
inline __m256 round_down(__m256 a, __m256 above) {  // by one unit, where it is too large
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(above)));
}
inline Lanes above_floor(Lanes x) {
  const Lanes n = floor(x), near = x - n;
  const Mask above = less(x, near + n);
  return TM_TWICE(round_down(near.a, above.a), round_down(near.b, above.b));
}
inline Lanes times_floor_power(Lanes a, Lanes x) {
  const Lanes n = floor(x);
  return TM_TWICE(times_power(a.a, n.a), times_power(a.b, n.b));
}
#undef TM_TWICE

#else

struct Lanes {
  float v[kLanes];
};
using Mask = uint32_t;

#define TM_EACH(expr)                              \
  Lanes r;                                         \
  for (int i = 0; i < kLanes; ++i) r.v[i] = (expr); \
  return r
inline Lanes splat(float x) { TM_EACH(x); }
inline Lanes load(const float* p) { TM_EACH(p[i]); }
inline void store(float* p, Lanes a) { std::memcpy(p, a.v, sizeof a.v); }
inline Lanes load(const float* p, int n) { TM_EACH(i < n ? p[i] : 0.0f); }
inline void store(float* p, Lanes a, int n) {
  for (int i = 0; i < kLanes && i < n; ++i) p[i] = a.v[i];
}
inline Lanes load(const uint16_t* p) {
  _Float16 h[kLanes];
  std::memcpy(h, p, sizeof h);
  TM_EACH(static_cast<float>(h[i]));
}
inline void store(uint16_t* p, Lanes a) {
  _Float16 h[kLanes];
  for (int i = 0; i < kLanes; ++i) h[i] = static_cast<_Float16>(a.v[i]);
  std::memcpy(p, h, sizeof h);
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) { TM_EACH(std::fma(a.v[i], b.v[i], c.v[i])); }
inline Lanes operator+(Lanes a, Lanes b) { TM_EACH(a.v[i] + b.v[i]); }
inline Lanes operator-(Lanes a, Lanes b) { TM_EACH(a.v[i] - b.v[i]); }
inline Lanes operator*(Lanes a, Lanes b) { TM_EACH(a.v[i] * b.v[i]); }
inline Lanes operator/(Lanes a, Lanes b) { TM_EACH(a.v[i] / b.v[i]); }
inline Lanes max(Lanes a, Lanes b) { TM_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline Lanes min(Lanes a, Lanes b) { TM_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline Lanes sqrt(Lanes a) { TM_EACH(std::sqrt(a.v[i])); }
inline Lanes round(Lanes a) { TM_EACH(std::nearbyint(a.v[i])); }
inline Lanes floor(Lanes a) { TM_EACH(std::floor(a.v[i])); }
inline Lanes abs(Lanes a) { TM_EACH(std::fabs(a.v[i])); }
inline Lanes copysign(Lanes a, Lanes s) { TM_EACH(std::copysign(a.v[i], s.v[i])); }
inline Mask less(Lanes a, Lanes b) {
  Mask m = 0;
  for (int i = 0; i < kLanes; ++i) m |= static_cast<Mask>(a.v[i] < b.v[i]) << i;
  return m;
}
inline Mask differs(Lanes a, Lanes b) {
  Mask m = 0;
  for (int i = 0; i < kLanes; ++i) m |= static_cast<Mask>(!(a.v[i] == b.v[i])) << i;
  return m;
}
inline Mask mask_bits(uint32_t bits) { return bits & 0xffff; }
inline uint32_t bits_of(Mask m) { return m; }
inline Lanes select(Mask m, Lanes yes, Lanes no) { TM_EACH(m >> i & 1 ? yes.v[i] : no.v[i]); }
inline Lanes power_of_two(Lanes n) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n.v[i]) + 127) << 23;
    std::memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
inline float above_floor(float x) {
  const float n = std::floor(x), near = x - n;
  return near + n > x ? std::nextafter(near, 0.0f) : near;
}
inline Lanes above_floor(Lanes x) { TM_EACH(above_floor(x.v[i])); }
inline Lanes times_floor_power(Lanes a, Lanes x) {
  for (int i = 0; i < kLanes; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &a.v[i], 4);
    bits += static_cast<uint32_t>(static_cast<int32_t>(std::floor(x.v[i]))) << 23;
    std::memcpy(&a.v[i], &bits, 4);
  }
  return a;
}
#undef TM_EACH

#endif

#if !defined(__AVX512F__)
inline Lanes times_any_power(Lanes a, Lanes n) {
  const Lanes half = floor(n * splat(0.5f));
  return a * power_of_two(half) * power_of_two(n - half);
}
#endif

// Sum and maximum of all lanes by the tree (i, i+8), (i, i+4), (i, i+2), (0, 1).
#if defined(__AVX2__)
inline __m256 halves_sum(Lanes a) {
#if defined(__AVX512F__)
  return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  return _mm256_add_ps(a.a, a.b);
#endif
}
inline __m256 halves_max(Lanes a) {
#if defined(__AVX512F__)
  return _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  return _mm256_max_ps(a.a, a.b);
#endif
}
inline float sum_lanes(Lanes a) {
  const __m256 h = halves_sum(a);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
inline float max_lanes(Lanes a) {
  const __m256 h = halves_max(a);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
#else
inline float sum_lanes(Lanes a) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  return a.v[0];
}
inline float max_lanes(Lanes a) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  return a.v[0];
}
#endif

}  // namespace mill::TM_ISA
