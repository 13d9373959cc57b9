// The register-blocked product of attention: c[q][·] (+)= Σ_k a[q][k] · b[k][·], k ascending in one fma chain an element.
//
// Both halves of attention are this product: scores (a = queries, b = keys side by side) and values (a = probabilities,
// b = rows of values). An element's bits do not depend on the blocking. b is read through a reader, `Dense`, which widens
// 16-bit numbers as it goes. Blocks of codes have products of their own (coded.h).
#pragma once

#include <utility>

#include "ops/lanes.h"
#include "simd/simd.h"

#define TM_INLINED __attribute__((always_inline))  // of a lambda

namespace mill::TM_ISA {

// Queries of a tile: their sums fill the registers, six rows of 64 numbers (AVX2: of 16). Where widening is dearer than
// loading, eight by 32: every row is then widened once for up to eight queries.
constexpr int kTileQ = 6;
#if defined(__AVX512F__)
constexpr int kNarrowQ = 8;
constexpr int tile_vectors(int q) { return q > kTileQ ? 2 : 4; }
#else
constexpr int kNarrowQ = kTileQ;
constexpr int tile_vectors(int q) { return q == 1 ? 4 : q == 2 ? 2 : 1; }
#endif

// f(0), f(1), … f(N − 1) with constants: arrays indexed by them live in registers.
template <int N, class F>
TM_INLINE void constants(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) TM_INLINED { (f(std::integral_constant<int, I>{}), ...); }
  (std::make_integer_sequence<int, N>{});
}

// The block of a page that is read next, fetched into the second-level cache as lines of this one are used: every line, from four
// places at once, each a stream that the hardware follows. What is needed first, the scales, comes first.
struct Fetch {
  const std::byte *block = nullptr, *next = nullptr;
  int64_t quarter = 0;  // of its bytes

  // A block begins, its values at `values`.
  TM_INLINE void begin(int64_t values) const {
    if (!next) return;
    for (const std::byte* at : {next, next + values}) prefetch_far(at), prefetch_far(at + 64);
  }

  // N lines of this block are used, from `at` on.
  template <int N>
  TM_INLINE void lines(const void* at) const {
    const int64_t line = (static_cast<const std::byte*>(at) - block) / 64, to = line / 4;
    if (!next) return;
    const int64_t first = N >= 4 ? 0 : N == 2 ? line & 2 : line & 3;
    for (int n = 0; n < N && n < 4; ++n) prefetch_far(next + 64 * to + (first + n) * quarter);
  }
};

// Rows of plain numbers, `stride` apart; `fetch` matters for what comes from memory.
template <class E>
struct Dense {
  static constexpr int kMostQ = sizeof(E) == 4 ? kTileQ : kNarrowQ;
  const E* p;
  int64_t stride;
  Fetch fetch = {};

  template <int V>
  struct Columns {
    const E* p;
    int64_t stride;
    Fetch fetch;
    TM_INLINE Lanes operator()(int64_t k, int v) const { return load(p + k * stride + v * kLanes); }
    TM_INLINE void ahead(int64_t k) const {
      if constexpr (sizeof(E) == 2) fetch.lines<(V + 1) / 2>(p + k * stride);
    }
  };
  template <int V>
  TM_INLINE Columns<V> columns(int64_t first) const {
    return {p + first * kLanes, stride, fetch};
  }
};

// into ← into · keep + value · take, where a factor 0 means that its side saw nothing: it is not read.
TM_INLINE void blend(float* into, float keep, float take, Lanes value) {
  if (take == 0.0f) return;
  store(into, keep == 0.0f ? value * splat(take) : fma(value, splat(take), load(into) * splat(keep)));
}

// Where the rows of a product go, `stride` apart: stored, added to what is there (as the start of the chain), or blended
// by two factors a row.
struct Result {
  float* c;
  int64_t stride;
  bool add = false;
  const float *keep = nullptr, *take = nullptr;

  Result from(int64_t q) const { return {c + q * stride, stride, add, keep ? keep + q : nullptr, take ? take + q : nullptr}; }
};

template <int Q, int V, class Rows>
void tile(const float* a, int64_t lda, const Rows& b, int64_t first, int64_t begin, int64_t end, const Result& to) {
  Lanes sum[Q][V];
  float* c = to.c + first * kLanes;
  constants<Q>([&](auto q) TM_INLINED {
    constants<V>([&](auto v) TM_INLINED { sum[q][v] = to.add ? load(c + q * to.stride + v * kLanes) : splat(0.0f); });
  });
  const auto columns = b.template columns<V>(first);
  for (int64_t k = begin; k < end; ++k) {
    Lanes row[V];
    constants<V>([&](auto v) TM_INLINED { row[v] = columns(k, v); });
    columns.ahead(k);
    constants<Q>([&](auto q) TM_INLINED {
      const Lanes x = splat(a[q * lda + k]);
      constants<V>([&](auto v) TM_INLINED { sum[q][v] = fma(x, row[v], sum[q][v]); });
    });
  }
  constants<Q>([&](auto q) TM_INLINED {
    float* row = c + q * to.stride;
    if (to.keep)
      constants<V>([&](auto v) TM_INLINED { blend(row + v * kLanes, to.keep[q], to.take[q], sum[q][v]); });
    else
      constants<V>([&](auto v) TM_INLINED { store(row + v * kLanes, sum[q][v]); });
  });
}

template <int Q, int V, class Rows>
void tile_columns(const float* a, int64_t lda, const Rows& b, int64_t first, int64_t vectors, int64_t begin, int64_t end,
                  const Result& to) {
  for (; first + V <= vectors; first += V) tile<Q, V>(a, lda, b, first, begin, end, to);
  if constexpr (V > 1)
    if (first < vectors) tile_columns<Q, V / 2>(a, lda, b, first, vectors, begin, end, to);
}

// c [queries][16·vectors], rows begin…end of b.
template <class Rows>
void product(const float* a, int64_t lda, int64_t queries, const Rows& b, int64_t vectors, int64_t begin, int64_t end,
             const Result& to) {
  for (int64_t q = 0; q < queries;) {
    const int64_t left = queries - q, n = left < Rows::kMostQ ? left : Rows::kMostQ;
    const auto run = [&](auto count) {
      tile_columns<count, tile_vectors(count)>(a + q * lda, lda, b, 0, vectors, begin, end, to.from(q));
    };
    switch (n) {
      case 1: run(std::integral_constant<int, 1>{}); break;
      case 2: run(std::integral_constant<int, 2>{}); break;
      case 3: run(std::integral_constant<int, 3>{}); break;
      case 4: run(std::integral_constant<int, 4>{}); break;
      case 5: run(std::integral_constant<int, 5>{}); break;
      case 6: run(std::integral_constant<int, 6>{}); break;
      default:
        if constexpr (Rows::kMostQ > kTileQ)
          n == 7 ? run(std::integral_constant<int, 7>{}) : run(std::integral_constant<int, 8>{});
    }
    q += n;
  }
}

}  // namespace mill::TM_ISA
