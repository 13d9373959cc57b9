// What the lanes of each of a few rows come to, for all of them at once: the sum or the largest by the tree of `sum_lanes`.
//
// Alone a row takes eight operations one after another; eight rows together take 24, as two vectors become one at each step.
#pragma once

#include "ops/tile.h"

namespace mill::TM_ISA {

#if defined(__AVX512F__)

// Lane i of the result (i < 8) is that of a[i].
template <class F>
TM_INLINE Lanes fold_eight(const Lanes (&a)[8], const F& f) {
  const auto halves = [&](int i) TM_INLINED {
    return f(_mm512_shuffle_f32x4(a[i].v, a[i + 1].v, 0x44), _mm512_shuffle_f32x4(a[i].v, a[i + 1].v, 0xEE));
  };
  const auto quarters = [&](int i) TM_INLINED {
    const __m512 x = halves(i), y = halves(i + 2);
    return f(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
  };
  const __m512 low = quarters(0), high = quarters(4);
  const __m512 pairs = f(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xEE));
  const __m512 all = f(_mm512_shuffle_ps(pairs, pairs, 0x88), _mm512_shuffle_ps(pairs, pairs, 0xDD));
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13), all)};
}

TM_INLINE Lanes fold_eight_sums(const Lanes (&a)[8]) {
  return fold_eight(a, [](__m512 x, __m512 y) TM_INLINED { return _mm512_add_ps(x, y); });
}
TM_INLINE Lanes fold_eight_largest(const Lanes (&a)[8]) {
  return fold_eight(a, [](__m512 x, __m512 y) TM_INLINED { return _mm512_max_ps(x, y); });
}
constexpr int kFewRows = 2;  // are faster one by one

#else

constexpr int kFewRows = kNarrowQ;

#endif

// Of the first n rows → `to`, which has room for a whole vector.
TM_INLINE void sum_each(Lanes (&a)[kNarrowQ], int64_t n, float* to) {
#if defined(__AVX512F__)
  if (n > kFewRows) {
    for (int64_t q = n; q < kNarrowQ; ++q) a[q] = a[0];
    return store(to, fold_eight_sums(a));
  }
#endif
  for (int64_t q = 0; q < n; ++q) to[q] = sum_lanes(a[q]);
}
TM_INLINE void max_each(Lanes (&a)[kNarrowQ], int64_t n, float* to) {
#if defined(__AVX512F__)
  if (n > kFewRows) {
    for (int64_t q = n; q < kNarrowQ; ++q) a[q] = a[0];
    return store(to, fold_eight_largest(a));
  }
#endif
  for (int64_t q = 0; q < n; ++q) to[q] = max_lanes(a[q]);
}

}  // namespace mill::TM_ISA
