// Attention over keys and values kept as rows of sixteen-bit integers (type f16, stored.h): both of its products in integers.
//
// A query is rounded to integers as well, times one factor; so are the probabilities of a block times the scales of its rows,
// times a power of two. Sums are then exact, whatever the order, and only scales are floats:
//
//   score = a · d_row · Σ q·code        value = 2^b · Σ_rows (p·d_row)·code
//
// No sum, nor any part of one, reaches 2^31: keys and queries are at most 46000 long as vectors (and half of √K for rounding);
// integers of values are at most 8000, so 64 of them are at most 64000 long, and the weights of a block less than 32768. A row
// that is seen alone comes out as it was stored: its weight is its scale, of 8 bits. Integers of rows that a query does not see
// are multiplied by 0, scales of theirs are not read.
#pragma once

#include "ops/coded.h"

namespace mill::TM_ISA {

constexpr float kLongestQuery = WordRow::kLongestKey, kLargestWord = WordRow::kLargestKey;

// Rows of sixteen-bit integers, `n` apart, each times its scale.
struct Words {
  int16_t* codes;
  float* scale;
  int64_t n;

  Words from(int64_t q) const { return {codes + q * n, scale + q, n}; }
};

// n numbers, already scaled → row 0 of `to`, which is followed by zeros up to a whole vector.
inline void round_query(const float* q, int64_t n, const Words& to) {
  Ints most = broadcast(0);
  for (int64_t j = 0; j < n; j += kLanes) most = max(most, magnitude(as_floats(load_row(q, j, 1, n - j))));
  const int32_t top = largest(most);
  const float size = float_of_bits(top), inverse = size < 1e-30f ? 0.0f : 1.0f / size;
  Floats squares = zero_floats();
  for (int64_t j = 0; j < n; j += kLanes) {
    const Floats x = mul(as_floats(load_row(q, j, 1, n - j)), broadcast(inverse));
    squares = fma(x, x, squares);
  }
  const float length = std::sqrt(total(squares)) / kLongestQuery, least = 1.0f / kLargestWord;
  const float scale = size * (length < least ? least : length);
  const bool lost = top >= kInfinity;
  *to.scale = lost ? NAN : scale;
  const float by = lost || inverse == 0.0f ? 0.0f : 1.0f / scale;
  for (int64_t j = 0; j < n; j += kLanes) {
    const Floats x = lost ? zero_floats() : mul(as_floats(load_row(q, j, 1, n - j)), broadcast(by));
    store_s16(to.codes + j, round_even(x));
  }
}

// The weights p·d of n queries → rows 0 … n − 1 of `to`; step by step for all, as in `soften`.
template <int V>
TM_INLINE void round_weights(const float* p, const float* d, int64_t n, const uint64_t* visible, const Words& to) {
  float up[kNarrowQ];
  Floats x[V];
  for (int64_t q = 0; q < n; ++q) {
    weights_of(p + q * kBlock, d, visible[q], x);
    Floats squares = mul(x[0], x[0]);
    for (int v = 1; v < V; ++v) squares = fma(x[v], x[v], squares);
    // 2^e ≤ the sum < 2^(e + 1): times 4^b it stays below 2^30. What is not finite has e = 128 and makes the scale NaN.
    int32_t bits;
    const float sum = total(squares);
    std::memcpy(&bits, &sum, 4);
    const int32_t e = (bits >> 23 & 255) - 127, b = (29 - e) >> 1;
    up[q] = float_of_bits((127 + b) << 23);
    to.scale[q] = e < 128 ? float_of_bits((127 - b) << 23) : NAN;
  }
  for (int64_t q = 0; q < n; ++q) {
    weights_of(p + q * kBlock, d, visible[q], x);
    Ints whole[V];
    for (int v = 0; v < V; ++v) whole[v] = round_even(mul(x[v], broadcast(up[q])));
    int16_t* codes = to.codes + q * to.n;
    for (int v = 0; v + 1 < V; v += 2) store_words(codes + v * kLanes, whole[v], whole[v + 1]);
    if constexpr (V % 2 == 1) store_s16(codes + (V - 1) * kLanes, whole[V - 1]);
  }
}

// Σ of inputs begin·2 … end·2 of Q rows, times V lines a step, steps `stride` bytes apart.
template <int Q, int V>
TM_INLINE void add_up(const std::byte* lines, int64_t stride, int64_t begin, int64_t end, const Words& x, const Fetch& fetch,
                      Ints (&sum)[Q][V]) {
  constants<Q>([&](auto q) TM_INLINED { constants<V>([&](auto v) TM_INLINED { sum[q][v] = broadcast(0); }); });
  for (int64_t step = begin; step < end; ++step) {
    const std::byte* at = lines + step * stride;
    Ints line[V];
    for (int v = 0; v < V; ++v) line[v] = load_ints(at + 64 * v);
    fetch.lines<V>(at);
    constants<Q>([&](auto q) TM_INLINED {
      const Ints two = broadcast(load_i32(x.codes + q * x.n + 2 * step));
      constants<V>([&](auto v) TM_INLINED { add_words(sum[q][v], line[v], two); });
    });
  }
}

// Vectors first … last of keys, scored by Q rows of inputs → rows of s, kBlock apart.
template <int Q, int V>
void score_words(const CodedBlock& block, const Words& x, int64_t first, int64_t last, float* s) {
  const std::byte* lines = block.p + 2 * block.lanes;
  for (; first + V <= last; first += V) {
    Ints sum[Q][V];
    add_up<Q, V>(lines + 64 * first, 4 * block.lanes, 0, (block.width + 1) / 2, x, block.fetch, sum);
    constants<V>([&](auto v) TM_INLINED {
      const Lanes d = load(reinterpret_cast<const BF16*>(block.p) + (first + v) * kLanes);
      constants<Q>([&](auto q) TM_INLINED {
        store(s + q * kBlock + (first + v) * kLanes, as_lanes(to_floats(sum[q][v])) * (d * splat(x.scale[q])));
      });
    });
  }
  if constexpr (V > 1)
    if (first < last) score_words<Q, V / 2>(block, x, first, last, s);
}

// Vectors first … of values, rows lo … hi weighed by Q rows of inputs, join those of `into` by the factors keep and take.
template <int Q, int V>
void value_words(const CodedBlock& block, const Words& x, int64_t lo, int64_t hi, int64_t first, const Partial& into,
                 const float* keep, const float* take) {
  const std::byte* lines = block.values + 2 * block.lanes;
  for (; first + V <= block.columns; first += V) {
    Ints sum[Q][V];
    add_up<Q, V>(lines + 64 * first, 64 * block.columns, lo / 2, (hi + 1) / 2, x, block.fetch, sum);
    constants<Q>([&](auto q) TM_INLINED {
      const Lanes scale = splat(x.scale[q]);
      constants<V>([&](auto v) TM_INLINED {
        float* to = into.o + q * into.stride + (first + v) * kLanes;
        blend(to, keep[q], take[q], as_lanes(to_floats(sum[q][v])) * scale);
      });
    });
  }
  if constexpr (V > 1)
    if (first < block.columns) value_words<Q, V / 2>(block, x, lo, hi, first, into, keep, take);
}

// The scales of values → float32; what is not seen is not used.
inline void word_scales(const CodedBlock& block, float* d) {
  for (int64_t j = 0; j < block.lanes; j += kLanes) store(d + j, load(reinterpret_cast<const BF16*>(block.values) + j));
}

// Scores of `queries` rows with the keys lo … hi of a block.
inline void score_words(const CodedBlock& block, const Words& x, int64_t queries, int64_t lo, int64_t hi, float* s) {
  with_count<kWordsQ>(queries, [&](auto n) {
    score_words<n, kWordsV>(block, x, lo / kLanes, (hi + kLanes - 1) / kLanes, s);
  });
}

// Values lo … hi weighed by p (rows of kBlock) join those of `into`. d: of word_scales; x: room for the inputs.
inline void weigh_words(const CodedBlock& block, const float* p, int64_t queries, const float* d, const uint64_t* masks, int64_t lo,
                        int64_t hi, const Words& x, const Partial& into, const float* keep, const float* take) {
  switch (block.lanes / kLanes) {
    case 1: round_weights<1>(p, d, queries, masks, x); break;
    case 2: round_weights<2>(p, d, queries, masks, x); break;
    case 3: round_weights<3>(p, d, queries, masks, x); break;
    default: round_weights<4>(p, d, queries, masks, x);
  }
  with_count<kWordsQ>(queries, [&](auto n) { value_words<n, kWordsV>(block, x, lo, hi, 0, into, keep, take); });
}

}  // namespace mill::TM_ISA
