// The quantised product of 9 to 16 tokens, for sets with many registers: a panel's weights go from packed bits to registers
// once, and one integer sum of each token fills the others. Float sums are in memory, where they wait for nobody.
// Activations are copied together first, in the order in which they are read:
//
//   | codes of 32 inputs, token by token | scales | where sums start | sums of codes, for mins | the next 32 inputs ...
#pragma once
#include "linear/decode.h"
#include "linear/shape.h"

namespace mill::TM_ISA::linear {

inline constexpr int kBatchTokens = kTileTokens > 4 ? 16 : 0;

template <class S, int NT> struct GroupTokens {  // 32 inputs
  alignas(64) int8_t codes[NT][32];
  float scale[NT];
  int32_t start[S::kParts][NT];
  float sum[S::kMins ? S::kMinParts : 1][NT];
};

template <class F, int NT> class Batch {
  using S = typename DecodedShape<F>::Tile;
  using X = GroupTokens<S, NT>;
  static constexpr int kPerBlock = F::kInputs / 32;
  // Groups that fit the scratch, in whole blocks of 512 inputs.
  static constexpr int64_t kMost = static_cast<int64_t>(kScratchBytes / sizeof(X)) / 16 * 16;

 public:
  static void run(const Matrix& m, int64_t begin, int64_t end, const Call& call, void* scratch) {
    auto* x = static_cast<X*>(scratch);
    const int64_t groups = m.columns / 32, bytes = panel_size(geometry_of<F>(), m.columns);
    const int count = static_cast<int>(call.n_tokens);
    float* out[NT];
    for (int64_t g0 = 0; g0 < groups; g0 += kMost) {
      const int64_t n = groups - g0 < kMost ? groups - g0 : kMost;
      for (int t = 0; t < NT; ++t) copy(call.token(t < count ? t : count - 1, 32 * g0), n, t, x);
      for (int64_t p = begin; p < end; ++p) {
        for (int t = 0; t < count; ++t) out[t] = call.row(t) + p * kPanel;
        panel(m.data + p * bytes, m.columns, g0, n, x, out, count, valid_rows(m, p));
      }
    }
  }

 private:
  static void copy(const Tokens& from, int64_t n, int t, X* x) {
    int32_t start[S::kParts * 16];
    float sum[S::kMins ? S::kMinParts * 16 : 1];
    for (int64_t g = 0; g < n; g += 16, x += 16) {
      const int some = static_cast<int>(n - g < 16 ? n - g : 16);
      const Tokens at{from.codes + 32 * g, from.scales + g, from.sums + 2 * g};
      prepare<DecodedShape<F>>(at, some, start, sum);
      for (int i = 0; i < some; ++i) {
        std::memcpy(x[i].codes[t], at.codes + 32 * i, 32);
        x[i].scale[t] = at.scales[i];
        for (int part = 0; part < S::kParts; ++part) x[i].start[part][t] = start[S::kParts * i + part];
        if constexpr (S::kMins)
          for (int part = 0; part < S::kMinParts; ++part) x[i].sum[part][t] = sum[S::kMinParts * i + part];
      }
    }
  }

  // Group j of a block; adds to h.
  static TM_INLINE void group(const uint8_t* block, int j, const typename F::Scales& scales, const X& x, float* h) {
    constexpr int bytes = F::kBytes / kPerBlock, ahead = (bytes + 63) / 64, lines = 8 / S::kParts;
    for (int i = 0; i < ahead; ++i) {
      prefetch_far(block + j * bytes + kPrefetchFar + 64 * i);
      prefetch(block + j * bytes + kPrefetch + 64 * i);
    }
    Bytes line[8];
    F::lines(block, j, [&](int i, Bytes codes) TM_LAMBDA { line[i] = decoded<F>(codes, scales, j, i); });
    const int8_t* codes = opaque(x.codes[0]);
    h = opaque(h);
    [[maybe_unused]] Floats joined[NT];
#pragma GCC unroll 2
    for (int part = 0; part < S::kParts; ++part) {
      Ints acc[NT];
      for (int t = 0; t < NT; ++t) acc[t] = DecodedShape<F>::kOffset == 0 ? broadcast(S::kStart) : broadcast(x.start[part][t]);
#pragma GCC unroll 8
      for (int i = part * lines; i < (part + 1) * lines; ++i)
        for (int t = 0; t < NT; ++t) acc[t] = dot_in_order(acc[t], line[i], codes + 32 * t + 4 * i);
      Floats scale = zero_floats(), less = zero_floats();
      if constexpr (S::kScaling != Scaling::kNone) {
        scale = scale_of<F>(scales, S::kParts * j + part);
        less = less_of(scale);
      }
      for (int t = 0; t < NT; ++t) {
        Floats each = product<S>(acc[t], scale, less);
        if constexpr (S::kJoined) {
          if (part == 0) {
            joined[t] = each;
            continue;
          }
          each = add(joined[t], each);
        }
        Floats sum = fma(each, broadcast(x.scale[t]), load_floats(h + 16 * t));
        if constexpr (S::kMins && !S::kWhole) sum = fnma(min_of<F>(scales, j), broadcast(x.sum[0][t]), sum);
        store(h + 16 * t, sum);
      }
    }
  }

  // f += d h - dmin (sum of mins), of a block of 256 inputs; h = 0.
  static TM_INLINE void finish(const typename F::Scales& scales, const X* x, float* h, float* f) {
    Floats d = scales.d(), less[NT];
    if constexpr (DecodedShape<F>::kNegated) d = sub(zero_floats(), d);
    if constexpr (S::kMins) {
      for (int t = 0; t < NT; ++t) less[t] = zero_floats();
#pragma GCC unroll 16
      for (int k = 0; k < kBlockGroups * S::kMinParts; ++k) {
        const float* sum = opaque(x[k / S::kMinParts].sum[k % S::kMinParts]);
        const Floats min = min_of<F>(scales, k);
        for (int t = 0; t < NT; ++t) less[t] = fma(min, broadcast(sum[t]), less[t]);
      }
    }
    h = opaque(h);
    f = opaque(f);
    Floats dmin = zero_floats();
    if constexpr (S::kMins) dmin = scales.dmin();
    for (int t = 0; t < NT; ++t) {
      Floats sum = fma(load_floats(h + 16 * t), d, load_floats(f + 16 * t));
      if constexpr (S::kMins) sum = fnma(less[t], dmin, sum);
      store(f + 16 * t, sum);
      store(h + 16 * t, zero_floats());
    }
  }

  static void panel(const uint8_t* panel, int64_t columns, int64_t g0, int64_t n, const X* x, float* const* out, int count,
                    int valid) {
    alignas(64) float f[16 * NT], h[16 * NT];
    for (int t = 0; t < NT; ++t) {
      store(f + 16 * t, g0 == 0 || t >= count ? zero_floats() : valid == 16 ? load_floats(out[t]) : load_first(out[t], valid));
      store(h + 16 * t, zero_floats());
    }
    const uint8_t* block = packed_groups<F>(panel, columns, g0);
    const uint8_t* front = panel + g0 / kPerBlock * F::kFront;
    for (int64_t g = 0; g < n; g += kPerBlock, block += F::kBytes, front += F::kFront, x += kPerBlock) {
      const typename F::Scales scales(front, block);
      const int end = static_cast<int>(n - g < kPerBlock ? n - g : kPerBlock);
      for (int j = 0; j < end; ++j) group(block, j, scales, x[j], S::kWhole ? h : f);
      if constexpr (S::kWhole) finish(scales, x, h, f);
    }
    for (int t = 0; t < count; ++t)
      valid == 16 ? store(out[t], load_floats(f + 16 * t)) : store_first(out[t], load_floats(f + 16 * t), valid);
  }
};

// Panels [begin, end) for all tokens of a call, which are kBatchTokens at most. An odd one out is computed twice.
template <class F, int NT = kBatchTokens>
void batch(const Matrix& m, int64_t begin, int64_t end, const Call& call, void* scratch) {
  if constexpr (NT > 10)
    if (call.n_tokens <= NT - 2) return batch<F, NT - 2>(m, begin, end, call, scratch);
  Batch<F, NT>::run(m, begin, end, call, scratch);
}

}  // namespace mill::TM_ISA::linear
