// What the lanes of each of 16 vectors come to, all at once: lane i of the result is that of a[i], by the tree of `total`.
// And sums of 16 times 16 bytes.
#pragma once
#include "simd/simd.h"

namespace mill::TM_ISA {

#if defined(__AVX512F__)

// Two vectors become one at each step, so that 16 take 15 steps rather than 64.
template <class F> TM_INLINE __m512 fold_pairs(const __m512* a, F f) {  // of 4, within 128 bits: lane 4 b + j is a[j]'s b-th
  const __m512 low = f(_mm512_shuffle_ps(a[0], a[1], 0x44), _mm512_shuffle_ps(a[0], a[1], 0xEE));
  const __m512 high = f(_mm512_shuffle_ps(a[2], a[3], 0x44), _mm512_shuffle_ps(a[2], a[3], 0xEE));
  return f(_mm512_shuffle_ps(low, high, 0x88), _mm512_shuffle_ps(low, high, 0xDD));
}
TM_INLINE __m512 transposed(__m512 a) {  // 4 x 4
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a);
}
template <class V, class F> TM_INLINE __m512 fold_each(const V (&a)[16], F f) {
  const auto halves = [&](int i) TM_LAMBDA {
    const __m512 x = (__m512)a[i].v, y = (__m512)a[i + 1].v;
    return f(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
  };
  __m512 four[4];
  for (int i = 0; i < 4; ++i) {
    const __m512 x = halves(4 * i), y = halves(4 * i + 2);
    four[i] = f(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
  }
  return transposed(fold_pairs(four, f));
}
TM_INLINE Floats total_each(const Floats (&a)[16]) {
  return {fold_each(a, [](__m512 x, __m512 y) TM_LAMBDA { return _mm512_add_ps(x, y); })};
}
TM_INLINE Ints largest_each(const Ints (&a)[16]) {
  return {_mm512_castps_si512(fold_each(a, [](__m512 x, __m512 y) TM_LAMBDA {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
  }))};
}
// Sums of 16 times 16 bytes.
TM_INLINE Ints sums_of_sixteens(const int8_t* p) {
  __m512 fours[4];
  for (int i = 0; i < 4; ++i)
    fours[i] = _mm512_castsi512_ps(
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(p + 64 * i)));
  return {_mm512_castps_si512(transposed(fold_pairs(fours, [](__m512 x, __m512 y) TM_LAMBDA {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
  })))};
}

#else

TM_INLINE Floats total_each(const Floats (&a)[16]) {
  float each[16];
  for (int i = 0; i < 16; ++i) each[i] = total(a[i]);
  return load_floats(each);
}
TM_INLINE Ints largest_each(const Ints (&a)[16]) {
  int32_t each[16];
  for (int i = 0; i < 16; ++i) each[i] = largest(a[i]);
  return load_ints(each);
}
TM_INLINE Ints sums_of_sixteens(const int8_t* p) {
  int32_t each[16];
  for (int i = 0; i < 16; ++i) each[i] = total(load_s8_ints(p + 16 * i));
  return load_ints(each);
}

#endif

}  // namespace mill::TM_ISA
