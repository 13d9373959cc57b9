// One key block of attention: scores, softmax and values of up to 64 rows for a tile of queries, from nothing.
//
// A block's (max, sum, value) depends on the query and the block alone, and blocks are merged ascending, so decode,
// prefill and any chunking give the same bits. Rows that a query may not see are never multiplied: memory there is
// arbitrary.
#pragma once

#include <cmath>

#include "ops/loops.h"
#include "ops/tile.h"
#include "ops/vmath.h"

namespace mill::TM_ISA {

constexpr int kBlock = 64;  // most rows of a block

// Running softmax of n queries: o = Σ e^{s−m}·v, l = Σ e^{s−m}; m = −∞ while nothing was seen. o rows are `stride` apart.
struct Partial {
  float *m, *l, *o;
  int64_t stride;
};

// into ← into ⊕ from, for n queries; m and l have whole vectors of room.
inline void merge(const Partial& into, const Partial& from, int64_t n) {
  const Lanes none = splat(-INFINITY), zero = splat(0.0f);
  for (int64_t first = 0; first < n; first += kLanes) {
    const Lanes m = load(into.m + first), other = load(from.m + first), most = max(m, other);
    // A side that saw nothing has the factor 0, both sides too; its numbers are finite, so 0 times them is 0.
    const Lanes top = select(less(none, most), most, zero);
    const Lanes x = exp_falling(m - top), y = exp_falling(other - top);
    store(into.m + first, most);
    store(into.l + first, fma(load(into.l + first), x, load(from.l + first) * y));
    float keep[kLanes], add[kLanes];
    store(keep, x);
    store(add, y);
    for (int64_t i = 0; i < kLanes && first + i < n; ++i) {
      if (add[i] == 0.0f) continue;
      float* a = into.o + (first + i) * into.stride;
      const float* b = from.o + (first + i) * from.stride;
      const Lanes p = splat(keep[i]), q = splat(add[i]);
      if (keep[i] == 0.0f) {
        for (int64_t j = 0; j < into.stride; j += kLanes) store(a + j, load(b + j) * q);
      } else {
        for (int64_t j = 0; j < into.stride; j += kLanes) store(a + j, fma(load(a + j), p, load(b + j) * q));
      }
    }
  }
}

// Scores of one query in place → probabilities; returns (max, sum) in m and l. `visible`: bit j for row j, not all 0.
template <int V>
TM_INLINE void soften(float* s, uint64_t visible, float& m, float& l) {
  Lanes x[V];
  for (int v = 0; v < V; ++v) x[v] = load(s + v * kLanes);
  if (V < 4 || visible != ~uint64_t{0})
    for (int v = 0; v < V; ++v)
      x[v] = select(mask_bits(static_cast<uint32_t>(visible >> (v * kLanes)) & 0xffff), x[v], splat(-INFINITY));
  Lanes most = x[0], total = splat(0.0f);
  for (int v = 1; v < V; ++v) most = max(most, x[v]);
  m = max_lanes(most);
  for (int v = 0; v < V; ++v) {
    const Lanes p = exp_falling(x[v] - splat(m));
    total = total + p;
    store(s + v * kLanes, p);
  }
  l = sum_lanes(total);
}

TM_INLINE void soften(float* s, int64_t vectors, uint64_t visible, float& m, float& l) {
  switch (vectors) {
    case 1: return soften<1>(s, visible, m, l);
    case 2: return soften<2>(s, visible, m, l);
    case 3: return soften<3>(s, visible, m, l);
    default: return soften<4>(s, visible, m, l);
  }
}

TM_INLINE uint64_t bits_between(int64_t lo, int64_t hi) {
  if (lo >= hi) return 0;
  const uint64_t below_hi = hi >= 64 ? ~uint64_t{0} : (uint64_t{1} << hi) - 1;
  return below_hi & ~((uint64_t{1} << lo) - 1);
}

// o[q] = Σ_j p[q][j] · v[j] over the rows that each query sees. `masks` has one entry for `share` consecutive queries.
template <class E>
inline void weigh(const float* p, int64_t queries, const E* v, int64_t v_stride, const uint64_t* masks, int64_t share,
                  float* o, int64_t o_stride) {
  const int64_t vectors = o_stride / kLanes;
  const auto one = [&](int64_t q, int64_t begin, int64_t end) {
    if (begin < end)
      product(p + q * kBlock, kBlock, 1, v, v_stride, begin, end, o + q * o_stride, o_stride, true, vectors);
  };
  for (int64_t first = 0; first < queries; first += kTileQ) {
    const int64_t n = queries - first < kTileQ ? queries - first : kTileQ;
    int64_t lo = 0, hi = kBlock;  // what all of them see, if each sees one run of rows
    bool ragged = false, runs = true;
    for (int64_t q = first; q < first + n; ++q) {
      const uint64_t mask = masks[q / share];
      const int64_t a = mask ? __builtin_ctzll(mask) : 0, b = mask ? 64 - __builtin_clzll(mask) : 0;
      runs &= mask == bits_between(a, b);
      ragged |= q > first && mask != masks[first / share];
      lo = a > lo ? a : lo;
      hi = b < hi ? b : hi;
    }
    if (runs && !ragged) {
      product(p + first * kBlock, kBlock, n, v, v_stride, lo, hi, o + first * o_stride, o_stride, false, vectors, kBlock - 1);
      continue;
    }
    for (int64_t j = 0; j < n * o_stride; j += kLanes) store(o + first * o_stride + j, splat(0.0f));
    const bool together = runs && lo < hi;
    for (int64_t q = first; q < first + n; ++q) {
      uint64_t mask = masks[q / share];
      if (together) mask &= bits_between(0, lo);
      for (; mask; mask &= mask - 1) {
        const int64_t j = __builtin_ctzll(mask);
        one(q, j, j + 1);
      }
    }
    if (!together) continue;
    product(p + first * kBlock, kBlock, n, v, v_stride, lo, hi, o + first * o_stride, o_stride, true, vectors, kBlock - 1);
    for (int64_t q = first; q < first + n; ++q) {
      const uint64_t mask = masks[q / share];
      one(q, hi, mask ? 64 - __builtin_clzll(mask) : 0);
    }
  }
}

}  // namespace mill::TM_ISA
