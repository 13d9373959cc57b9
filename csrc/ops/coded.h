// Attention over keys and values in blocks of codes (q8_0, q4_0): both of its products in integers.
//
// A query is rounded to sixteen bits, times one power of two; so are, for each 32 dims of values, the probabilities of a
// block times the scales of its rows. Sums of codes are then exact, whatever the order, and only scales are floats:
//
//   score = 2^a · Σ_blocks d · Σ_32 q·code        value = 2^b · Σ_rows (p·d)·code
//
// A power of two keeps what fits: a row that is seen alone comes out as it was stored. Layouts: stored.h. Integers of rows
// that a query does not see are multiplied by 0, scales of theirs are not read.
#pragma once

#include "ops/flash.h"
#include "ops/stored.h"
#include "simd/wide.h"

namespace mill::TM_ISA {

// Lines of 64 bytes: 4 dims of 16 keys, or 4 rows of 16 dims of values.
struct Q8Lines {
  using Block = Q8_0;
  static constexpr int32_t kOffset = 128 - kLineBias;  // by which codes of a line exceed their values
  static constexpr int kParts = 1;                     // of the 32 dims of a key in one line
  static constexpr int64_t kValueLines = 2;            // that 32 dims of values take
  static TM_INLINE Line key(const std::byte* p, int) { return load_line(p); }
  static TM_INLINE Line value(const std::byte* p, int64_t column) { return load_line(p + 64 * column); }
};
struct Q4Lines {
  using Block = Q4_0;
  static constexpr int32_t kOffset = 8;
  static constexpr int kParts = 2;
  static constexpr int64_t kValueLines = 1;
  static TM_INLINE Line key(const std::byte* p, int part) { return part ? load_high(p) : load_low(p); }
  static TM_INLINE Line value(const std::byte* p, int64_t column) { return column ? load_high(p) : load_low(p); }
};

// Rows of sixteen-bit inputs (simd/wide.h): `n` numbers a row, rows `stride` bytes apart, each times its scale; the sums of
// groups of inputs as lines want them to start.
struct Wide {
  std::byte* codes;
  int32_t* start;
  float* scale;
  int64_t n, groups;

  Wide from(int64_t q) const { return {codes + q * 2 * n, start + q * groups, scale + q, n, groups}; }
};

#if defined(__AVX512F__)
TM_INLINE Floats as_floats(Lanes a) { return {a.v}; }
TM_INLINE Lanes as_lanes(Floats a) { return {a.v}; }
#elif defined(__AVX2__)
TM_INLINE Floats as_floats(Lanes a) { return {{a.a, a.b}}; }
TM_INLINE Lanes as_lanes(Floats a) { return {a.v[0], a.v[1]}; }
#else
TM_INLINE Floats as_floats(Lanes a) { return load_floats(a.v); }
TM_INLINE Lanes as_lanes(Floats a) {
  Lanes r;
  store(r.v, a);
  return r;
}
#endif

TM_INLINE float float_of_bits(int32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

constexpr int32_t kInfinity = 0x7f800000;

// V vectors → integers, V·16 numbers of a row of `n` from `at` on, by the factor `up` (a power of two); their sums.
template <int V>
TM_INLINE Ints round_by(const Floats (&x)[V], float up, std::byte* to, int64_t n, int64_t at) {
  Ints code[V];
  for (int v = 0; v < V; ++v) code[v] = round_even(mul(x[v], broadcast(up)));
  if constexpr (V == 4) {
    store_wide(to, n, code);
    return add(add(code[0], code[1]), add(code[2], code[3]));
  }
  for (int v = 0; v < V; ++v) store_wide(to, n, at + v * kLanes, code[v]);
  for (int v = 1; v < V; ++v) code[0] = add(code[0], code[v]);
  return code[0];
}

// The powers of two for a largest magnitude (its bits): to integers of at most 32512, and back.
TM_INLINE void powers(int32_t most, float& up, float& down) {
  const int32_t power = (most + (1 << 17)) & kInfinity, least = 27 << 23;  // 2^-100: no sum feels what is below
  const int32_t by = power > least ? power : least;
  up = float_of_bits((268 << 23) - by);
  down = float_of_bits(by - (14 << 23));
}


// A query of whole blocks of 32, already scaled → row 0 of `to`; one that is not finite gives the scale NaN.
inline void round_query(const float* q, const Wide& to, int32_t offset) {
  Ints most = broadcast(0);
  for (int64_t j = 0; j < to.n; j += kLanes) most = max(most, magnitude(load_floats(q + j)));
  float up, down;
  const int32_t top = largest(most);
  powers(top, up, down);
  *to.scale = top >= kInfinity ? NAN : down;
  if (top >= kInfinity) up = 0.0f;
  for (int64_t j = 0; j < to.n; j += 32) {
    const Floats x[2] = {load_floats(q + j), load_floats(q + j + kLanes)};
    to.start[j / 32] = -offset * total(round_by(x, up, to.codes, to.n, j));
  }
}

// Infinities and NaNs take all: 1 for them, 0 for the rest, times what is largest.
template <int V>
Ints round_endless(const Floats (&x)[V], int32_t top, std::byte* to, int64_t n, float& scale) {
  Floats codes[V];
  for (int v = 0; v < V; ++v) {
    float code[kLanes];
    store(code, x[v]);
    for (float& e : code) e = std::isfinite(e) ? 0.0f : e < 0.0f ? -1.0f : 1.0f;
    codes[v] = load_floats(code);
  }
  scale = float_of_bits(top);
  return round_by(codes, 1.0f, to, n, 0);
}

// V vectors of p·d, of the rows that a query sees.
template <int V>
TM_INLINE void weights_of(const float* p, const float* d, uint64_t visible, Floats (&x)[V]) {
  for (int v = 0; v < V; ++v) x[v] = as_floats(load(p + v * kLanes) * load(d + v * kLanes));
  if (V == 4 && visible == ~uint64_t{0}) return;
  for (int v = 0; v < V; ++v)
    x[v] = as_floats(select(mask_bits(static_cast<uint32_t>(visible >> (v * kLanes)) & 0xffff), as_lanes(x[v]), splat(0.0f)));
}

// p·d of n queries → rows 0 … n − 1 of `to`; step by step for all, as in `soften`.
template <int V>
TM_INLINE void round_weights(const float* p, const float* d, int64_t n, const uint64_t* visible, const Wide& to, int32_t offset) {
  int32_t top[kNarrowQ];
  Floats x[V];
  for (int64_t q = 0; q < n; ++q) {
    weights_of(p + q * kBlock, d, visible[q], x);
    Ints most = magnitude(x[0]);
    for (int v = 1; v < V; ++v) most = max(most, magnitude(x[v]));
    top[q] = largest(most);
  }
  Ints sum[kNarrowQ];
  for (int64_t q = 0; q < n; ++q) {
    float up;
    powers(top[q], up, to.scale[q]);
    weights_of(p + q * kBlock, d, visible[q], x);
    if (__builtin_expect(top[q] >= kInfinity, 0))
      sum[q] = round_endless(x, top[q], to.codes + q * 2 * to.n, to.n, to.scale[q]);
    else
      sum[q] = round_by(x, up, to.codes + q * 2 * to.n, to.n, 0);
  }
  for (int64_t q = 0; q < n; ++q) to.start[q] = -offset * total(sum[q]);
}

// One head's block of codes in a page.
struct CodedBlock {
  const std::byte *p, *values;
  int64_t width, columns, lanes;  // K; vectors of values that are wanted
  Fetch fetch;
};

// Lines of keys of one group of 32 dims, from vector `first` of keys on; of values, from vector `first` of dims on.
template <class C>
struct KeyLines {
  const CodedBlock& block;
  const std::byte* p;
  int64_t group;
  static constexpr int kParts = C::kParts;
  template <int V>
  TM_INLINE void lines(int64_t step, int part, Line (&to)[V]) const {
    const std::byte* at = p + step * 4 * block.lanes;
    for (int v = 0; v < V; ++v) to[v] = C::key(at + 64 * v, part);
    if (part == 0) block.fetch.lines<V>(at);
  }
  TM_INLINE int64_t quad(int64_t step, int part) const { return 8 * group + step + 4 * part; }
};
template <class C>
struct ValueLines {
  const CodedBlock& block;
  const std::byte* p;
  int64_t first;
  static constexpr int kParts = 1;
  template <int V>
  TM_INLINE void lines(int64_t step, int, Line (&to)[V]) const {
    const std::byte* at = p + step * 64 * C::kValueLines;
    for (int v = 0; v < V; ++v) to[v] = C::value(at, first + v);
    block.fetch.lines<C::kValueLines>(at);
  }
  TM_INLINE int64_t quad(int64_t step, int) const { return step; }
};

// Σ inputs · codes for Q rows of inputs and V lines a step.
template <int Q, int V, class Lines>
TM_INLINE void add_up(const Lines& lines, int64_t steps, const Wide& x, int64_t group, Ints (&out)[Q][V]) {
  Sums sum[Q][V];
  constants<Q>([&](auto q) TM_INLINED {
    constants<V>([&](auto v) TM_INLINED { sum[q][v] = start_sums(x.start[q * x.groups + group]); });
  });
  for (int64_t step = 0; step < steps; ++step)
    constants<Lines::kParts>([&](auto part) TM_INLINED {
      Line line[V];
      lines.lines(step, part, line);
      constants<Q>([&](auto q) TM_INLINED {
        const Quad four = load_quad(x.codes + q * 2 * x.n, x.n, lines.quad(step, part));
        constants<V>([&](auto v) TM_INLINED { add_dot(sum[q][v], line[v], four); });
      });
    });
  constants<Q>([&](auto q) TM_INLINED { constants<V>([&](auto v) TM_INLINED { out[q][v] = total(sum[q][v]); }); });
}

// Scores of Q queries with V vectors of keys, `first` on → rows of s, kBlock apart.
template <class C, int Q, int V>
void score_tile(const CodedBlock& block, const Wide& x, int64_t first, float* s) {
  for (int64_t b = 0; b < block.width / 32; ++b) {
    const std::byte* group = block.p + b * kBlockBytes<typename C::Block> * block.lanes;
    Ints sum[Q][V];
    add_up<Q, V>(KeyLines<C>{block, group + 2 * block.lanes + 64 * first, b}, 8 / C::kParts, x, b, sum);
    constants<V>([&](auto v) TM_INLINED {
      const Lanes d = load(reinterpret_cast<const uint16_t*>(group) + (first + v) * kLanes);
      constants<Q>([&](auto q) TM_INLINED {
        float* to = s + q * kBlock + (first + v) * kLanes;
        const Lanes by = d * splat(x.scale[q]), part = as_lanes(to_floats(sum[q][v]));
        store(to, b == 0 ? part * by : fma(part, by, load(to)));
      });
    });
  }
}

template <class C, int Q, int V>
void score_columns(const CodedBlock& block, const Wide& x, int64_t first, float* s) {
  for (; first + V <= block.lanes / kLanes; first += V) score_tile<C, Q, V>(block, x, first, s);
  if constexpr (V > 1)
    if (first < block.lanes / kLanes) score_columns<C, Q, V / 2>(block, x, first, s);
}

// Values of group b of 32 dims, weighed by Q rows of inputs, join those of `into` by the factors keep and take.
template <class C, int Q, int V>
void value_tile(const CodedBlock& block, const Wide& x, int64_t b, const Partial& into, const float* keep, const float* take) {
  const std::byte* group = block.values + b * kBlockBytes<typename C::Block> * block.lanes;
  for (int64_t first = 0; first < 2 && 2 * b + first < block.columns; first += V) {
    Ints sum[Q][V];
    add_up<Q, V>(ValueLines<C>{block, group + 2 * block.lanes, first}, block.lanes / 4, x, 0, sum);
    constants<Q>([&](auto q) TM_INLINED {
      const Lanes scale = splat(x.scale[q]);
      constants<V>([&](auto v) TM_INLINED {
        const int64_t column = 2 * b + first + v;
        if (column < block.columns)
          blend(into.o + q * into.stride + column * kLanes, keep[q], take[q], as_lanes(to_floats(sum[q][v])) * scale);
      });
    });
  }
}

constexpr int wide_vectors(int q) { return kWideV == 1 ? 1 : q <= 3 ? 2 * kWideV : kWideV; }

// f(n) with n as a constant, 1 … kWideQ.
template <int N = kWideQ, class F>
TM_INLINE void with_count(int64_t n, const F& f) {
  if (n == N) return f(std::integral_constant<int, N>{});
  if constexpr (N > 1) with_count<N - 1>(n, f);
}

template <class C>
void code_scores(const CodedBlock& block, const Wide& x, int64_t queries, float* s) {
  with_count(queries, [&](auto n) { score_columns<C, n, wide_vectors(n)>(block, x, 0, s); });
}

// Scales of values, [groups of 32 dims][lanes] → float32; what is not seen is not used.
template <class C>
void value_scales(const CodedBlock& block, float* d) {
  for (int64_t b = 0; 2 * b < block.columns; ++b)
    for (int64_t j = 0; j < block.lanes; j += kLanes) {
      const std::byte* group = block.values + b * kBlockBytes<typename C::Block> * block.lanes;
      store(d + b * kBlock + j, load(reinterpret_cast<const uint16_t*>(group) + j));
    }
}

// Values weighed by p (rows of kBlock) join those of `into`. d: of value_scales; x: room for the inputs of all groups of dims.
template <class C>
void weigh_codes(const CodedBlock& block, const float* p, int64_t queries, const float* d, const uint64_t* masks,
                 const Wide& x, const Partial& into, const float* keep, const float* take) {
  for (int64_t b = 0; 2 * b < block.columns; ++b) {
    const auto round = [&](auto vectors) {
      round_weights<vectors>(p, d + b * kBlock, queries, masks, x.from(b * queries), C::kOffset);
    };
    switch (block.lanes / kLanes) {
      case 1: round(std::integral_constant<int, 1>{}); break;
      case 2: round(std::integral_constant<int, 2>{}); break;
      case 3: round(std::integral_constant<int, 3>{}); break;
      default: round(std::integral_constant<int, 4>{});
    }
  }
  for (int64_t b = 0; 2 * b < block.columns; ++b)
    with_count(queries, [&](auto n) { value_tile<C, n, kWideV>(block, x.from(b * queries), b, into, keep, take); });
}

}  // namespace mill::TM_ISA
