// The product for every quantised format (format.h): GEMV for few tokens, straight from the packed bits, GEMM for many
// (sweep.h), from byte lines decoded into scratch, and something between (batch.h). All follow the one arithmetic of linear.h,
// group by group.
#pragma once
#include "linear/batch.h"
#include "linear/call.h"
#include "linear/decode.h"
#include "linear/shape.h"
#include "linear/sweep.h"
#include "simd/codebooks.h"

namespace mill::TM_ISA::linear {

inline constexpr int kGemvTile = kTileTokens > 4 ? 8 : 4;  // tokens that share one decoding in registers

struct Prepared {  // a token's row for GEMV
  const int8_t* codes;
  const float* scales;
  const int32_t* start;
  const float* sum;
};

// Whether few tokens get F's values from byte shuffles, which have another order of inputs.
template <class F> constexpr bool shuffled() {
  if constexpr (requires { F::kShuffledWidth; }) return kShuffles;
  return false;
}
// Whether they take the remainders of base 3 as they are, which are bytes above 127.
template <class F> constexpr bool remainders() {
  if constexpr (requires { F::kRemainders; }) return !kSignedDot;
  return false;
}
// Whether they take halves of codes, which the set gathers as nibbles.
template <class F> constexpr bool halved() {
  if constexpr (requires { F::kHalved; }) return kShuffles;
  return false;
}
// Whether 9 to 16 tokens are done together: not where decoding takes the registers that they would fill.
template <class F> constexpr bool batched() { return kBatchTokens > 0 && !shuffled<F>() && !halved<F>(); }

// Scratch that GEMV needs for a token.
template <class F> constexpr int64_t prepared_bytes(int64_t columns) {
  return columns * 8 / F::kGroup + (shuffled<F>() ? columns * Shape<F>::kParts : 0);
}

template <int by> TM_INLINE Ints divided(Ints a) {  // multiples of a power of two
  if constexpr (by == 1) return a;
  else return shift_down<__builtin_ctz(by)>(a);
}

// What a group's products sum up to for each token, exactly: in acc[t][0]; with halves in acc[t][0] and [1], the latter
// times kHighTimes.
template <class F, int NT>
TM_INLINE void dot_group(const uint8_t* block, int j, int64_t g, const Prepared* x, Ints (&acc)[NT][2]) {
  using S = Shape<F>;
  constexpr bool two = S::kHalves || NT <= 4;  // few tokens: two chains each, or the dots wait for one another
  constexpr int times = two && !S::kHalves ? high_times<F>() : 1, second = times > 1 ? high_from<F>() : 4;
  const auto start = [&](int t, int part) TM_LAMBDA {
    return broadcast(S::kOffset == 0 ? S::kStart : x[t].start[S::kParts * g + part]);
  };
  for (int t = 0; t < NT; ++t) {
    acc[t][0] = halved<F>() ? broadcast(0) : start(t, 0);
    acc[t][1] = halved<F>() || !S::kHalves ? broadcast(0) : start(t, 1);
  }
  const auto use = [&](int line, Bytes codes) TM_LAMBDA {
    for (int t = 0; t < NT; ++t) {
      Ints& sum = acc[t][two && line >= second];
      sum = dot_at<S::kWide>(sum, codes, x[t].codes + 32 * g + 4 * line);
    }
  };
  if constexpr (S::kHighTimes > 1 || times > 1) {
    F::template lines<true>(block, j, use);
  } else if constexpr (shuffled<F>()) {
    F::shuffled(block, j, [&](int line, Bytes codes) TM_LAMBDA {
      for (int t = 0; t < NT; ++t) {
        const int8_t* a = x[t].codes + 32 * S::kParts * g + 4 * line;
        Ints& first = acc[t][two && !S::kHalves ? line >> 2 : 0];
        first = dot_at<S::kWide>(first, codes, a);
        if constexpr (S::kHalves) acc[t][1] = dot_at<S::kWide>(acc[t][1], codes, a + 32);
      }
    });
  } else if constexpr (halved<F>()) {
    F::halves(block, j, use);
  } else {
    F::lines(block, j, use);
  }
  if constexpr (!S::kHalves && two)
    for (int t = 0; t < NT; ++t) acc[t][0] = add(acc[t][0], divided<times>(acc[t][1]));
  if constexpr (halved<F>())
    for (int t = 0; t < NT; ++t)
      for (int i = 0; i < S::kParts; ++i) acc[t][i] = add(start(t, i), add(acc[t][i], acc[t][i]));
}

// The same from what is left of base 3: lines are (3 rest - next) / 256, and so are their sums.
template <class F, int NT>
TM_INLINE void dot_remainders(const uint8_t* block, int j, int64_t g, const Prepared* x, Ints (&acc)[NT][2]) {
  for (int t = 0; t < NT; ++t) acc[t][0] = acc[t][1] = broadcast(0);
  F::remainders(block, j, [&](int line, Bytes rest, Bytes next) TM_LAMBDA {
    for (int t = 0; t < NT; ++t) {
      const int8_t* a = x[t].codes + 32 * g + 4 * line;
      acc[t][0] = dot_at<true>(acc[t][0], rest, a);
      acc[t][1] = dot_at<true>(acc[t][1], next, a);
    }
  });
  for (int t = 0; t < NT; ++t) {
    const Ints three = add(acc[t][0], add(acc[t][0], acc[t][0]));
    acc[t][0] = add(broadcast(x[t].start[g]), divided<256>(sub(three, acc[t][1])));
  }
}

// Group j of one packed block; g is its number in the row. Adds to h.
template <class F, int NT>
TM_INLINE void gemv_group(const uint8_t* block, int j, int64_t g, const typename F::Scales& scales, const Prepared* x,
                          Floats* h) {
  using S = Shape<F>;
  constexpr int bytes = F::kBytes / (F::kInputs / 32), ahead = (bytes + 63) / 64;
  for (int i = 0; i < ahead; ++i) {
    prefetch_far(block + j * bytes + kPrefetchFar + 64 * i);
    prefetch(block + j * bytes + kPrefetch + 64 * i);
  }
  Ints acc[NT][2];
  if constexpr (remainders<F>()) dot_remainders<F, NT>(block, j, g, x, acc);
  else dot_group<F, NT>(block, j, g, x, acc);
  if constexpr (S::kHighTimes > 1) {
    for (int t = 0; t < NT; ++t)
      h[t] = fma(to_floats(dot_words(acc[t][0], acc[t][1], scales.pair(j))), broadcast(x[t].scales[g]), h[t]);
    return;
  }
  Floats scale[2], less[2];
  if constexpr (S::kScaling != Scaling::kNone)
    for (int i = 0; i < S::kParts; ++i) {
      scale[i] = scale_of<F>(scales, S::kParts * j + i);
      less[i] = less_of(scale[i]);
    }
  for (int t = 0; t < NT; ++t) {
    const Floats da = broadcast(x[t].scales[g]);
    Floats each[2];
    for (int i = 0; i < S::kParts; ++i) each[i] = product<S>(acc[t][i], scale[i], less[i]);
    if constexpr (S::kJoined) h[t] = fma(add(each[0], each[1]), da, h[t]);
    else
      for (int i = 0; i < S::kParts; ++i) h[t] = fma(each[i], da, h[t]);
  }
  if constexpr (S::kMins && !S::kWhole)
    for (int t = 0; t < NT; ++t) h[t] = fnma(min_of<F>(scales, j), broadcast(x[t].sum[g]), h[t]);
}

// Groups [0, n) of one packed block; g is the number of its first group.
template <class F, int NT>
TM_INLINE void gemv_block(const uint8_t* front, const uint8_t* block, int n, int64_t g, const Prepared* x, Floats* f) {
  using S = Shape<F>;
  const typename F::Scales scales(front, block);
  if constexpr (!S::kWhole) {
    for (int j = 0; j < n; ++j) gemv_group<F, NT>(block, j, g + j, scales, x, f);
  } else {
    Floats h[NT];
    for (int t = 0; t < NT; ++t) h[t] = zero_floats();
    // Of one token unrolled, if registers are many: where a group's scale lies is known then, and with fewer instructions more
    // groups are under way. AVX2 loses by it.
    const auto group = [&](int j) TM_LAMBDA { gemv_group<F, NT>(block, j, g + j, scales, x, h); };
    if constexpr (NT == 1 && kTileTokens > 4) unroll<kBlockGroups>(group);
    else
      for (int j = 0; j < kBlockGroups; ++j) group(j);
    for (int t = 0; t < NT; ++t) f[t] = fma(h[t], scales.d(), f[t]);
    if constexpr (S::kMins) {
      for (int t = 0; t < NT; ++t) h[t] = zero_floats();
      for (int k = 0; k < kBlockGroups * S::kMinParts; ++k)
        for (int t = 0; t < NT; ++t)
          h[t] = fma(min_of<F>(scales, k), broadcast(x[t].sum[S::kMinParts * g + k]), h[t]);
      for (int t = 0; t < NT; ++t) f[t] = fnma(h[t], scales.dmin(), f[t]);
    }
  }
}

// One panel, NT tokens, of which the first n are stored.
template <class F, int NT>
void gemv(const uint8_t* panel, int64_t columns, const Prepared* x, float* const* out, int n, int valid) {
  constexpr int per_block = F::kInputs / 32;
  const uint8_t* block = panel + front_bytes(geometry_of<F>(), columns);
  const int64_t groups = columns / 32;
  Floats f[NT];
  for (int t = 0; t < NT; ++t) f[t] = zero_floats();
  int64_t g = 0;
  for (; g + per_block <= groups; g += per_block, block += F::kBytes, panel += F::kFront)
    gemv_block<F, NT>(panel, block, per_block, g, x, f);
  if constexpr (per_block > 1 && !F::kWhole)
    if (g < groups) gemv_block<F, NT>(panel, block, static_cast<int>(groups - g), g, x, f);
  for (int t = 0; t < NT; ++t)
    if (t < n) valid == 16 ? store(out[t], f[t]) : store_first(out[t], f[t], valid);
}

// n <= NT tokens; x holds NT. Five and seven are done as six and eight.
template <class F, int NT = kGemvTile>
void gemv_of(int n, const uint8_t* panel, int64_t columns, const Prepared* x, float* const* out, int valid) {
  constexpr int fewer = NT > 4 ? NT - 2 : NT - 1;
  if constexpr (NT > 1) {
    if (n <= fewer) return gemv_of<F, fewer>(n, panel, columns, x, out, valid);
  }
  gemv<F, NT>(panel, columns, x, out, n, valid);
}

// Tokens [t0, t0 + n) of the call, n <= kGemvTile.
template <class F>
void gemv_panels(const Matrix& m, int64_t begin, int64_t end, const Call& call, int64_t t0, int n, uint8_t* scratch) {
  using S = Shape<F>;
  Prepared x[kGemvTile];
  const int64_t groups = m.columns / 32, parts = groups * (32 / F::kGroup), bytes = panel_size(geometry_of<F>(), m.columns);
  for (int t = 0; t < n; ++t) {
    const Tokens row = call.token(t0 + t);
    auto* start = reinterpret_cast<int32_t*>(scratch + prepared_bytes<F>(m.columns) * t);
    auto* sum = reinterpret_cast<float*>(start + parts);
    prepare<S>(row, groups, start, sum);
    x[t] = {row.codes, row.scales, start, sum};
    if constexpr (shuffled<F>()) {
      auto* codes = reinterpret_cast<int8_t*>(sum + parts);
      for (int64_t g = 0; g < groups; ++g)
        shuffle_codes<F::kShuffledWidth, S::kHalves>(row.codes + 32 * g, codes + 32 * S::kParts * g);
      x[t].codes = codes;
    }
  }
  for (int t = n; t < kGemvTile; ++t) x[t] = x[n - 1];
  for (int64_t p = begin; p < end; ++p) {
    float* out[kGemvTile];
    for (int t = 0; t < n; ++t) out[t] = call.row(t0 + t) + p * kPanel;
    gemv_of<F>(n, m.data + p * bytes, m.columns, x, out, valid_rows(m, p));
  }
}

#ifdef TM_TILES

// A set with tiles adds the product of many tokens to another set's kernels.
template <class F>
void multiply(const Matrix& m, int64_t begin, int64_t end, const Activations& x, const int32_t* x_rows,
              int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void* scratch) {
  const Call call{x, x_rows, n_tokens, out, out_stride, out_rows};
  const TileUse use(shapes_of<typename DecodedShape<F>::Tile>());
  Sweep<F>(m, call, scratch).run(begin, end);
}

template <class F> constexpr FormatKernels quantised(Type type) {
  return {type, true, geometry_of<F>(), nullptr, multiply<F>, nullptr};
}

#else

template <class F>
void multiply(const Matrix& m, int64_t begin, int64_t end, const Activations& x, const int32_t* x_rows,
              int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void* scratch) {
  const Call call{x, x_rows, n_tokens, out, out_stride, out_rows};
  const int64_t room = static_cast<int64_t>(kScratchBytes) / prepared_bytes<F>(m.columns);
  if (n_tokens <= kGemvTile && room > 0) {
    for (int64_t t = 0; t < n_tokens; t += room)
      gemv_panels<F>(m, begin, end, call, t, static_cast<int>(n_tokens - t < room ? n_tokens - t : room),
                     static_cast<uint8_t*>(scratch));
    return;
  }
  if constexpr (batched<F>())
    if (n_tokens <= kBatchTokens) return batch<F>(m, begin, end, call, scratch);
  Sweep<F>(m, call, scratch).run(begin, end);
}

template <class F> constexpr FormatKernels quantised(Type type) {
  return {type, true, geometry_of<F>(), pack_blocks<F>, multiply<F>, decode_row<F>};
}

#endif

}  // namespace mill::TM_ISA::linear
