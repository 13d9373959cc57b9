// One key block of attention: scores, softmax and values of up to 64 rows for a tile of queries, from nothing.
//
// Blocks join a span ascending, spans the whole; what a span comes to depends on the query and its blocks alone, so decode,
// prefill and any chunking give the same bits. Rows that a query may not see are never multiplied: memory there is
// arbitrary.
#pragma once

#include <cmath>

#include "ops/folds.h"
#include "ops/loops.h"
#include "ops/vmath.h"

namespace mill::TM_ISA {

constexpr int kBlock = 64;  // most rows of a block

// Running softmax of n queries: o = Σ 2^{s−m}·v, l = Σ 2^{s−m}; m = −∞ while nothing was seen. o rows are `stride` apart.
struct Partial {
  float *m, *l, *o;
  int64_t stride;

  Partial from(int64_t q) const { return {m + q, l + q, o + q * stride, stride}; }
};

// What becomes of n running softmaxes when others join: into.m and into.l are of both; m and l, which come with those of the
// others and have whole vectors of room, go with the factors of the values of both. The side with the larger maximum has the
// factor 1, one that saw nothing 0; its numbers are finite, so 0 times them is 0.
inline void join(const Partial& into, float* m_keep, float* l_take, int64_t n) {
  const Lanes none = splat(-INFINITY), zero = splat(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes m = load(into.m + i), other = load(m_keep + i), most = max(m, other);
    const Lanes part = exp2_falling(min(m, other) - select(differs(most, none), most, zero));
    const Lanes x = select(differs(m, none), select(less(m, other), part, splat(1.0f)), zero);
    const Lanes y = select(differs(other, none), select(less(other, m), part, splat(1.0f)), zero);
    store_row(into.m + i, most, n - i);
    store_row(into.l + i, fma(load(into.l + i), x, load(l_take + i) * y), n - i);
    store(m_keep + i, x);
    store(l_take + i, y);
  }
}

// Values of query i of `from` join those of `into`.
inline void blend_row(const Partial& into, const Partial& from, int64_t i, float keep, float take) {
  float* a = into.o + i * into.stride;
  const float* b = from.o + i * from.stride;
  if (take == 0.0f) return;
  if (keep == 0.0f)
    for (int64_t j = 0; j < into.stride; j += kLanes) store(a + j, load(b + j) * splat(take));
  else
    for (int64_t j = 0; j < into.stride; j += kLanes) store(a + j, fma(load(b + j), splat(take), load(a + j) * splat(keep)));
}

// into ← into ⊕ from, for n queries; the m and l of `from` are used up.
inline void merge(const Partial& into, const Partial& from, int64_t n) {
  join(into, from.m, from.l, n);
  for (int64_t i = 0; i < n; ++i) blend_row(into, from, i, from.m[i], from.l[i]);
}

constexpr float kFaint = -40.0f;  // 2^-40 beside a 1 is lost; with less, products would have denormals to wait for
constexpr float kSlack = 16.0f;   // by which scores may exceed what they are relative to

// How a block joins the running softmaxes of a span: what its scores are relative to, and the factors keep of what is there, and
// take of what comes, 1 or 0. `plain`: all factors are 1.
struct Joining {
  float m[kLanes], keep[kLanes], take[kLanes];
  bool plain;
};

// Softmax of a block in two steps, between which the caller does something else, as each ends in long chains of operations.
// First: what n rows of scores are relative to as they join `into`. `visible`: bit j for row j. An m stays as long as no score
// exceeds it by much: then nothing has to be scaled. It follows from the blocks of the span so far, whatever the step.
template <int V>
TM_INLINE void settle(float* s, int64_t n, const uint64_t* visible, const Partial& into, Joining& how) {
  Lanes part[kNarrowQ];
  for (int64_t q = 0; q < n; ++q) {
    float* row = s + q * kBlock;
    Lanes x[V];
    for (int v = 0; v < V; ++v) x[v] = load(row + v * kLanes);
    if (V < 4 || visible[q] != ~uint64_t{0})
      for (int v = 0; v < V; ++v) {
        x[v] = select(mask_bits(static_cast<uint32_t>(visible[q] >> (v * kLanes)) & 0xffff), x[v], splat(-INFINITY));
        store(row + v * kLanes, x[v]);
      }
    part[q] = x[0];
    for (int v = 1; v < V; ++v) part[q] = max(part[q], x[v]);
  }
  const Lanes none = splat(-INFINITY), zero = splat(0.0f), one = splat(1.0f);
  store(how.m, none);
  max_each(part, n, how.m);
  const Lanes old = load(into.m), most = load(how.m);
  const Mask stays = less(most, old + splat(kSlack));
  const Lanes m = select(stays, old, most);
  store(how.m, m);
  store_row(into.m, m, n);
  const uint32_t all = (1u << n) - 1;
  how.plain = (bits_of(stays) & bits_of(differs(most, none)) & all) == all;
  store(how.keep, how.plain ? one : select(differs(old, none), exp2_falling(old - m), zero));
  store(how.take, how.plain ? one : select(differs(most, none), one, zero));
}

// Second: probabilities, each row's to `then(q, visible, p, where its scores were)`, and their sums. What is not visible comes as
// something faint.
template <int V, bool kFine, class F>
TM_INLINE void soften(float* s, int64_t n, const uint64_t* visible, const Partial& into, const Joining& how, F&& then) {
  Lanes part[kNarrowQ];
  for (int64_t q = 0; q < n; ++q) {
    part[q] = splat(0.0f);
    if (visible[q] == 0) continue;
    float* row = s + q * kBlock;
    Lanes p[V];
    for (int v = 0; v < V; ++v) p[v] = exp2_within<kFine>(max(load(row + v * kLanes) - splat(how.m[q]), splat(kFaint)));
    part[q] = p[0];
    for (int v = 1; v < V; ++v) part[q] = part[q] + p[v];
    then(q, visible[q], p, row);
  }
  float l[kLanes];
  store(l, splat(0.0f));
  sum_each(part, n, l);
  store_row(into.l, fma(load(into.l), load(how.keep), load(l)), n);
}

// f(V), the number of vectors as a constant.
template <class F>
TM_INLINE void with_vectors(int64_t vectors, const F& f) {
  switch (vectors) {
    case 1: return f(std::integral_constant<int, 1>{});
    case 2: return f(std::integral_constant<int, 2>{});
    case 3: return f(std::integral_constant<int, 3>{});
    default: return f(std::integral_constant<int, 4>{});
  }
}

TM_INLINE uint64_t bits_between(int64_t lo, int64_t hi) {
  if (lo >= hi) return 0;
  const uint64_t below_hi = hi >= 64 ? ~uint64_t{0} : (uint64_t{1} << hi) - 1;
  return below_hi & ~((uint64_t{1} << lo) - 1);
}

// Values of a block join those of `into`: Σ_j p[q][j] · v[j] over the rows that each of n queries sees, by the factors in m
// (keep) and l (take) of `block`, whose o serves where the queries see different rows. n is at most Rows::kMostQ.
template <class Rows>
inline void weigh(const float* p, int64_t n, const Rows& v, const uint64_t* masks, const Partial& into, const Partial& block) {
  const int64_t vectors = into.stride / kLanes;
  int64_t lo = 0, hi = kBlock;  // what all of them see, if each sees one run of rows
  bool ragged = false, runs = true;
  for (int64_t q = 0; q < n; ++q) {
    const int64_t a = masks[q] ? __builtin_ctzll(masks[q]) : 0, b = masks[q] ? 64 - __builtin_clzll(masks[q]) : 0;
    runs &= masks[q] == bits_between(a, b);
    ragged |= masks[q] != masks[0];
    lo = a > lo ? a : lo;
    hi = b < hi ? b : hi;
  }
  if (runs && !ragged)
    return product(p, kBlock, n, v, vectors, lo, hi, {into.o, into.stride, false, block.m, block.l});
  const Result alone{block.o, block.stride, true};
  const auto add = [&](int64_t q, int64_t count, int64_t begin, int64_t end) {
    if (begin < end) product(p + q * kBlock, kBlock, count, v, vectors, begin, end, alone.from(q));
  };
  for (int64_t j = 0; j < n * block.stride; j += kLanes) store(block.o + j, splat(0.0f));
  const bool together = runs && lo < hi;
  for (int64_t q = 0; q < n; ++q) {
    uint64_t mask = masks[q];
    if (together) mask &= bits_between(0, lo);
    for (; mask; mask &= mask - 1) {
      const int64_t j = __builtin_ctzll(mask);
      add(q, 1, j, j + 1);
    }
  }
  if (together) {
    add(0, n, lo, hi);
    for (int64_t q = 0; q < n; ++q) add(q, 1, hi, masks[q] ? 64 - __builtin_clzll(masks[q]) : 0);
  }
  for (int64_t q = 0; q < n; ++q) blend_row(into, block, q, block.m[q], block.l[q]);
}

}  // namespace mill::TM_ISA
