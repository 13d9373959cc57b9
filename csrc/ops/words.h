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

// The weights p·d of queries, made as their probabilities come, and what becomes of them as integers.
struct Weights {
  const float* d;  // of word_scales
  Lanes squares[kNarrowQ] = {};

  template <int V>
  TM_INLINE void operator()(int64_t q, uint64_t visible, const Lanes (&p)[V], float* row) {
    Lanes x[V];
    const bool all = V == 4 && visible == ~uint64_t{0};
    for (int v = 0; v < V; ++v) {
      x[v] = p[v] * load(d + v * kLanes);
      if (!all) x[v] = select(mask_bits(static_cast<uint32_t>(visible >> (v * kLanes)) & 0xffff), x[v], splat(0.0f));
      store(row + v * kLanes, x[v]);
    }
    squares[q] = x[0] * x[0];
    for (int v = 1; v < V; ++v) squares[q] = fma(x[v], x[v], squares[q]);
  }

  // n rows, kBlock apart → those of `to`, whose scales have room for a whole vector.
  template <int V>
  TM_INLINE void round(const float* rows, int64_t n, const Words& to) {
    float sum[kLanes], up[kLanes];
    store(sum, splat(0.0f));
    sum_each(squares, n, sum);
    // 2^e ≤ the sum < 2^(e + 1): times 4^b it stays below 2^30. What is not finite makes the scale NaN.
    const Lanes each = load(sum);
    const Ints e = sub(bit_and(shift_right<23>(bits(as_floats(each))), broadcast(255)), broadcast(127));
    const Ints b = shift_down<1>(sub(broadcast(29), e));
    store(up, from_bits(shift_left<23>(add(broadcast(127), b))));
    const Lanes back = as_lanes(from_bits(shift_left<23>(sub(broadcast(127), b))));
    store(to.scale, select(less(each, splat(INFINITY)), back, splat(NAN)));
    for (int64_t q = 0; q < n; ++q) {
      const float* x = rows + q * kBlock;
      Ints whole[V];
      for (int v = 0; v < V; ++v) whole[v] = round_even(mul(as_floats(load(x + v * kLanes)), broadcast(up[q])));
      int16_t* codes = to.codes + q * to.n;
      for (int v = 0; v < V; v += 2) store_words(codes + v * kLanes, whole[v], v + 1 < V ? whole[v + 1] : broadcast(0));
    }
  }
};

// Σ of pairs of inputs begin … end of Q rows, times V lines a step, steps `stride` bytes apart. place(step): of a pair in its
// row.
template <int Q, int V, class Place>
TM_INLINE void add_up(const std::byte* lines, int64_t stride, int64_t begin, int64_t end, const Words& x, const Place& place,
                      const Fetch& fetch, Ints (&sum)[Q][V]) {
  constants<Q>([&](auto q) TM_INLINED { constants<V>([&](auto v) TM_INLINED { sum[q][v] = broadcast(0); }); });
  const auto steps = [&](const auto& ahead) TM_INLINED {
    for (int64_t step = begin; step < end; ++step) {
      const std::byte* at = lines + step * stride;
      Ints line[V];
      for (int v = 0; v < V; ++v) line[v] = load_ints(at + 64 * v);
      ahead(at);
      const int16_t* pair = x.codes + 2 * place(step);
      constants<Q>([&](auto q) TM_INLINED {
        const Ints two = broadcast(load_i32(pair + q * x.n));
        constants<V>([&](auto v) TM_INLINED { add_words(sum[q][v], line[v], two); });
      });
    }
  };
  if (fetch.next) return steps([&](const std::byte* at) TM_INLINED { fetch.lines<V>(at); });
  steps([](const std::byte*) TM_INLINED {});
}

// Vectors first … last of keys, scored by Q rows of inputs → rows of s, kBlock apart.
template <int Q, int V>
void score_words(const CodedBlock& block, const float* scales, const Words& x, int64_t first, int64_t last, float* s) {
  const std::byte* lines = block.p + 2 * block.lanes;
  for (; first + V <= last; first += V) {
    Ints sum[Q][V];
    add_up<Q, V>(lines + 64 * first, 4 * block.lanes, 0, (block.width + 1) / 2, x, [](int64_t pair) TM_INLINED { return pair; },
                 block.fetch, sum);
    constants<V>([&](auto v) TM_INLINED {
      const Lanes d = load(scales + (first + v) * kLanes);
      constants<Q>([&](auto q) TM_INLINED {
        store(s + q * kBlock + (first + v) * kLanes, as_lanes(to_floats(sum[q][v])) * (d * splat(x.scale[q])));
      });
    });
  }
  if constexpr (V > 1)
    if (first < last) score_words<Q, V / 2>(block, scales, x, first, last, s);
}

// Vectors first … of values, rows lo … hi weighed by Q rows of inputs, join those of `into`.
template <int Q, int V>
void value_words(const CodedBlock& block, const Words& x, int64_t lo, int64_t hi, int64_t first, const Partial& into,
                 const Joining& how) {
  const std::byte* lines = block.values + 2 * block.lanes;
  for (; first + V <= block.columns; first += V) {
    Ints sum[Q][V];
    add_up<Q, V>(lines + 64 * first, 64 * block.columns, lo / 2, (hi + 1) / 2, x,
                 [](int64_t pair) TM_INLINED { return word_place(pair); }, block.fetch, sum);
    float* o = into.o + first * kLanes;
    if (how.plain) {
      constants<Q>([&](auto q) TM_INLINED {
        const Lanes scale = splat(x.scale[q]);
        constants<V>([&](auto v) TM_INLINED {
          float* to = o + q * into.stride + v * kLanes;
          store(to, fma(as_lanes(to_floats(sum[q][v])), scale, load(to)));
        });
      });
      continue;
    }
    constants<Q>([&](auto q) TM_INLINED {
      const float take = how.take[q] * x.scale[q];
      if (how.take[q] == 0.0f) return;
      constants<V>([&](auto v) TM_INLINED {
        blend(o + q * into.stride + v * kLanes, how.keep[q], take, as_lanes(to_floats(sum[q][v])));
      });
    });
  }
  if constexpr (V > 1)
    if (first < block.columns) value_words<Q, V / 2>(block, x, lo, hi, first, into, how);
}

// The scales of keys and values → float32; what is not seen is not used.
inline void word_scales(const CodedBlock& block, float* keys, float* values) {
  for (int64_t j = 0; j < block.lanes; j += kLanes) {
    store(keys + j, load(reinterpret_cast<const BF16*>(block.p) + j));
    store(values + j, load(reinterpret_cast<const BF16*>(block.values) + j));
  }
}

// Scores of `queries` rows with the keys lo … hi of a block.
inline void score_words(const CodedBlock& block, const float* scales, const Words& x, int64_t queries, int64_t lo, int64_t hi,
                        float* s) {
  with_count<kWordsQ>(queries, [&](auto n) {
    score_words<n, kWordsV>(block, scales, x, lo / kLanes, (hi + kLanes - 1) / kLanes, s);
  });
}

// Values lo … hi by their weights join those of `into`; x: room for the integers.
inline void weigh_words(const CodedBlock& block, Weights& weights, const float* rows, int64_t queries, int64_t lo, int64_t hi,
                        const Words& x, const Partial& into, const Joining& how) {
  with_vectors(block.lanes / kLanes, [&](auto v) { weights.round<v>(rows, queries, x); });
  with_count<kWordsQ>(queries, [&](auto n) { value_words<n, kWordsV>(block, x, lo, hi, 0, into, how); });
}

}  // namespace mill::TM_ISA
