// The register-blocked product of attention: c[q][·] (+)= Σ_k a[q][k] · b[k][·], k ascending in one fma chain an element.
//
// Both halves of attention are this product: scores (a = queries, b = keys side by side) and values (a = probabilities,
// b = rows of values). An element's bits do not depend on the blocking.
#pragma once

#include "ops/lanes.h"

#ifndef TM_INLINE
#define TM_INLINE inline __attribute__((always_inline))
#endif

namespace mill::TM_ISA {

#if defined(__AVX512F__)
constexpr int kTileQ = 8, kTileV = 2;  // 16 of 32 registers accumulate
#else
constexpr int kTileQ = 4, kTileV = 1;
#endif

constexpr int64_t kAhead = 16;  // rows of half precision: 2 KB of a page of 64-wide heads

TM_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

template <int Q, int V, class E>
void tile(const float* a, int64_t lda, const E* b, int64_t ldb, int64_t begin, int64_t end, float* c, int64_t ldc,
          bool accumulate, int64_t last) {
  Lanes acc[Q][V];
  for (int q = 0; q < Q; ++q)
    for (int v = 0; v < V; ++v) acc[q][v] = accumulate ? load(c + q * ldc + v * kLanes) : splat(0.0f);
  for (int64_t k = begin; k < end; ++k) {
    Lanes row[V];
    for (int v = 0; v < V; ++v) row[v] = load(b + k * ldb + v * kLanes);
    if constexpr (sizeof(E) == 2)  // pages come from memory, widened copies from cache
      for (int line = 0; line < V; line += 2) prefetch(b + (k + kAhead < last ? k + kAhead : last) * ldb + line * kLanes);
    for (int q = 0; q < Q; ++q) {
      const Lanes x = splat(a[q * lda + k]);
      for (int v = 0; v < V; ++v) acc[q][v] = fma(x, row[v], acc[q][v]);
    }
  }
  for (int q = 0; q < Q; ++q)
    for (int v = 0; v < V; ++v) store(c + q * ldc + v * kLanes, acc[q][v]);
}

template <int Q, int V, class E>
void tile_columns(const float* a, int64_t lda, const E* b, int64_t ldb, int64_t begin, int64_t end, float* c, int64_t ldc,
                  bool accumulate, int64_t vectors, int64_t last) {
  int64_t v = 0;
  for (; v + V <= vectors; v += V) tile<Q, V>(a, lda, b + v * kLanes, ldb, begin, end, c + v * kLanes, ldc, accumulate, last);
  if constexpr (V > 1)
    for (; v < vectors; ++v) tile<Q, 1>(a, lda, b + v * kLanes, ldb, begin, end, c + v * kLanes, ldc, accumulate, last);
}

// c [queries][16·vectors]. `last`: the last row of b worth fetching ahead.
template <class E>
void product(const float* a, int64_t lda, int64_t queries, const E* b, int64_t ldb, int64_t begin, int64_t end, float* c,
             int64_t ldc, bool accumulate, int64_t vectors, int64_t last = INT64_MAX) {
  while (queries > 0) {
    int64_t n = queries < kTileQ ? queries : kTileQ;
#define TM_TILE(q, v)                                                                  \
  case q:                                                                              \
    tile_columns<q, v>(a, lda, b, ldb, begin, end, c, ldc, accumulate, vectors, last); \
    break;
    switch (n) {
#if defined(__AVX512F__)
      TM_TILE(1, 8) TM_TILE(2, 4) TM_TILE(3, 4) TM_TILE(4, 4) TM_TILE(5, 4) TM_TILE(6, 4) TM_TILE(7, 2)
#else
      TM_TILE(1, 4) TM_TILE(2, 2) TM_TILE(3, 1)
#endif
      default: n = kTileQ; tile_columns<kTileQ, kTileV>(a, lda, b, ldb, begin, end, c, ldc, accumulate, vectors, last);
    }
#undef TM_TILE
    a += n * lda;
    c += n * ldc;
    queries -= n;
  }
}

}  // namespace mill::TM_ISA
