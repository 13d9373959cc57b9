// The register block of the quantised GEMM: P panels x NT tokens over a chunk of up to 512 inputs, from decoded
// byte lines and from activations copied together. It knows no format, only the shape of a group (shape.h).
#pragma once
#include "linear/shape.h"

namespace mill::TM_ISA::linear {

inline constexpr int kChunkGroups = 16;  // 512 inputs: two panels of lines are 16 KB
inline constexpr int kBlockGroups = 8;   // of a block of 256 inputs, whose whole scales share d

struct DecodedPanel {  // one chunk of it
  alignas(64) uint8_t lines[kChunkGroups * 8 * 64];
  alignas(64) float scale[kChunkGroups * 2 * 16];
  alignas(64) float less[kChunkGroups * 2 * 16];  // less_of(scale)
  alignas(64) float min[kChunkGroups * 2 * 16];
  alignas(64) float d[kChunkGroups / kBlockGroups * 16], dmin[kChunkGroups / kBlockGroups * 16];
};

// One chunk of a tile's activations and what the groups need of them: read for every pair of panels, from the second
// cache and in order, where the rows themselves lie far apart.
template <class S> struct TileTokens {
  alignas(64) int8_t codes[kTileTokens][32 * kChunkGroups];
  alignas(64) float scale[kTileTokens][kChunkGroups];
  int32_t start[kTileTokens][S::kParts * kChunkGroups];
  float sum[kTileTokens][S::kSums ? S::kSums * kChunkGroups : 1];
  float* out[kTileTokens];  // rows
  int64_t first;            // token
  int count;

  template <class F> TM_INLINE void set(int t, const Tokens& x, int n, float* row) {
    int g = 0;
    for (; g + 2 <= n; g += 2) store(codes[t] + 32 * g, load_bytes(x.codes + 32 * g));
    if (g < n) std::memcpy(codes[t] + 32 * g, x.codes + 32 * g, 32);
    if (n == kChunkGroups) store(scale[t], load_floats(x.scales));
    else std::memcpy(scale[t], x.scales, static_cast<size_t>(n) * sizeof(float));
    prepare<F>(x, n, start[t], sum[t]);
    out[t] = row;
  }
};

// Weights that are decoded next, fetched into the second cache while the tiles before are computed.
template <int P> struct Ahead {
  const uint8_t* at[P];
  int lines;  // of each, for each group
};

// p, of which the compiler forgets where it came from: one register and constant offsets, not a register an offset.
template <class T> TM_INLINE T* opaque(T* p) {
  asm("" : "+r"(p));
  return p;
}

// Adds groups [begin, end) to h.
template <class S, int P, int NT>
TM_INLINE void add_groups(const DecodedPanel* w, const TileTokens<S>& x, const Ahead<P>& ahead, int begin, int end,
                          Floats (&h)[NT][P]) {
  constexpr int lines = 8 / S::kParts, row = 32 * kChunkGroups, panel = sizeof(DecodedPanel);
  for (int g = begin; g < end; ++g) {
    for (int i = 0; i < ahead.lines; ++i)
      for (int p = 0; p < P; ++p) prefetch_far(ahead.at[p] + 64 * (ahead.lines * g + i));
    const int8_t* codes = opaque(x.codes[0] + 32 * g);
    const uint8_t* weights = opaque(w->lines + 512 * g);
    [[maybe_unused]] Floats first[NT][P];
#pragma GCC unroll 2
    for (int part = 0; part < S::kParts; ++part) {
      const int k = g * S::kParts + part;
      Ints acc[NT][P];
      for (int t = 0; t < NT; ++t)
        for (int p = 0; p < P; ++p) acc[t][p] = broadcast(x.start[t][k]);
#pragma GCC unroll 8
      for (int i = part * lines; i < (part + 1) * lines; ++i) {
        Bytes line[P];
        for (int p = 0; p < P; ++p) line[p] = load_bytes(weights + p * panel + 64 * i);
        for (int t = 0; t < NT; ++t)
          for (int p = 0; p < P; ++p) acc[t][p] = dot_at<S::kWide>(acc[t][p], line[p], codes + t * row + 4 * i);
      }
      for (int p = 0; p < P; ++p) {
        const Floats scale = load_floats(w[p].scale + 16 * k), less = load_floats(w[p].less + 16 * k);
        for (int t = 0; t < NT; ++t) {
          Floats each;
          if constexpr (S::kScaling == Scaling::kHalf) each = fma_to(to_floats(acc[t][p]), broadcast(2.0f), &x.sum[t][g]);
          else each = product<S>(acc[t][p], scale, less);
          if constexpr (S::kJoined) {
            if (part == 0) {
              first[t][p] = each;
              continue;
            }
            each = add(first[t][p], each);
          }
          h[t][p] = fma_at(each, &x.scale[t][g], h[t][p]);
          if constexpr (S::kMins && !S::kWhole)
            h[t][p] = fnma(load_floats(w[p].min + 16 * g), broadcast(x.sum[t][g]), h[t][p]);
        }
      }
    }
  }
}

// A block of 256 inputs from group g on, whose products are in h: out += d h - dmin (sum of mins).
template <class S, int P, int NT, class X>
TM_INLINE void add_block(const DecodedPanel* w, const X& x, float* const* out, int g, bool first, int valid,
                         Floats (&h)[NT][P]) {
  const int b = 16 * (g / kBlockGroups);
  for (int p = 0; p < P; ++p) {
    const Floats d = load_floats(w[p].d + b);
    for (int t = 0; t < NT; ++t) {
      const float* at = out[t] + 16 * p;
      const Floats f = first ? zero_floats() : p + 1 < P || valid == 16 ? load_floats(at) : load_first(at, valid);
      h[t][p] = fma(h[t][p], d, f);
    }
  }
  if constexpr (S::kMins) {
    Floats less[NT][P];
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) less[t][p] = zero_floats();
#pragma GCC unroll 8
    for (int i = 0; i < kBlockGroups * S::kMinParts; ++i)
      for (int p = 0; p < P; ++p) {
        const int k = g * S::kMinParts + i;
        const Floats min = load_floats(w[p].min + 16 * k);
        for (int t = 0; t < NT; ++t) less[t][p] = fma(min, broadcast(x.sum[t][k]), less[t][p]);
      }
    for (int p = 0; p < P; ++p)
      for (int t = 0; t < NT; ++t) h[t][p] = fnma(less[t][p], load_floats(w[p].dmin + b), h[t][p]);
  }
}

// n groups of a chunk; `column` is that of the first panel's first row in a row of out.
template <class S, int P, int NT>
void tile(const DecodedPanel* w, const TileTokens<S>& x, const Ahead<P>& ahead, int64_t column, int n, bool first, int valid) {
  constexpr int step = S::kWhole ? kBlockGroups : kChunkGroups;
  float* out[NT];
  for (int t = 0; t < NT; ++t) out[t] = x.out[t] + column;
  for (int g = 0; g < n; g += step, first = false) {
    Floats h[NT][P];
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) {
        const float* at = out[t] + 16 * p;
        h[t][p] = S::kWhole || first ? zero_floats()
                  : p + 1 < P || valid == 16 ? load_floats(at) : load_first(at, valid);
      }
    add_groups<S, P, NT>(w, x, ahead, g, S::kWhole ? g + step : n, h);
    if constexpr (S::kWhole) add_block<S, P, NT>(w, x, out, g, first, valid, h);
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) {
        float* at = out[t] + 16 * p;
        p + 1 < P || valid == 16 ? store(at, h[t][p]) : store_first(at, h[t][p], valid);
      }
  }
}

template <class S, int P, int NT = kTileTokens>
TM_INLINE void run_tile(int nt, const DecodedPanel* w, const TileTokens<S>& x, const Ahead<P>& ahead, int64_t column, int n,
                        bool first, int valid) {
  if constexpr (NT > 1) {
    if (nt < NT) return run_tile<S, P, NT - 1>(nt, w, x, ahead, column, n, first, valid);
  }
  tile<S, P, NT>(w, x, ahead, column, n, first, valid);
}

}  // namespace mill::TM_ISA::linear
