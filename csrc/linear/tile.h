// The register block of the quantised GEMM: P panels x NT tokens over a chunk of up to 512 inputs, from decoded
// byte lines. It knows no format, only the shape of a group (shape.h).
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

struct TileScratch {
  DecodedPanel panel[2];
};
static_assert(sizeof(TileScratch) <= kScratchBytes);

struct TileTokens {  // activations of a tile, and what the groups need of them
  const int8_t* codes[kTileTokens];
  const int8_t* next[kTileTokens];  // codes of the next tile, fetched ahead: rows are short and far apart
  const float* scale[kTileTokens];
  float* out[kTileTokens];
  alignas(64) int32_t start[kTileTokens][2 * kChunkGroups];
  alignas(64) float sum[kTileTokens][2 * kChunkGroups];

  template <class S> TM_INLINE void set(int t, const Tokens& x, int n) {
    codes[t] = x.codes;
    scale[t] = x.scales;
    prepare<S>(x, n, start[t], sum[t]);
  }
};

// Adds groups [begin, end) to h.
template <class S, int P, int NT>
TM_INLINE void add_groups(const TileScratch& w, const TileTokens& x, int begin, int end, Floats (&h)[NT][P]) {
  constexpr int lines = 8 / S::kParts;
  for (int g = begin; g < end; ++g) {
    if (g % 2 == 0)
      for (int t = 0; t < NT; ++t) prefetch(x.next[t] + 32 * g);
    [[maybe_unused]] Floats first[NT][P];
#pragma GCC unroll 2
    for (int part = 0; part < S::kParts; ++part) {
      const int k = g * S::kParts + part;
      Ints acc[NT][P];
      for (int t = 0; t < NT; ++t)
        for (int p = 0; p < P; ++p) acc[t][p] = broadcast(x.start[t][k]);
#pragma GCC unroll 8
      for (int i = 0; i < lines; ++i) {
        Bytes codes[P];
        for (int p = 0; p < P; ++p) codes[p] = load_bytes(w.panel[p].lines + (k * lines + i) * 64);
        for (int t = 0; t < NT; ++t) {
          const int32_t a = load_i32(x.codes[t] + 4 * (k * lines + i));
          for (int p = 0; p < P; ++p) acc[t][p] = dot<S::kWide>(acc[t][p], codes[p], a);
        }
      }
      for (int p = 0; p < P; ++p) {
        const Floats scale = load_floats(w.panel[p].scale + 16 * k), less = load_floats(w.panel[p].less + 16 * k);
        for (int t = 0; t < NT; ++t) {
          Floats each = product<S>(acc[t][p], scale, less);
          if constexpr (S::kJoined) {
            if (part == 0) {
              first[t][p] = each;
              continue;
            }
            each = add(first[t][p], each);
          }
          h[t][p] = fma(each, broadcast(x.scale[t][g]), h[t][p]);
          if constexpr (S::kMins && !S::kWhole)
            h[t][p] = fnma(load_floats(w.panel[p].min + 16 * g), broadcast(x.sum[t][g]), h[t][p]);
        }
      }
    }
  }
}

// A block of 256 inputs from group g on, whose products are in h: out += d h - dmin (sum of mins).
template <class S, int P, int NT>
TM_INLINE void add_block(const TileScratch& w, const TileTokens& x, int g, bool first, int valid, Floats (&h)[NT][P]) {
  const int b = 16 * (g / kBlockGroups);
  for (int p = 0; p < P; ++p) {
    const Floats d = load_floats(w.panel[p].d + b);
    for (int t = 0; t < NT; ++t) {
      const float* at = x.out[t] + 16 * p;
      const Floats f = first ? zero_floats() : p + 1 < P || valid == 16 ? load_floats(at) : load_first(at, valid);
      h[t][p] = fma(h[t][p], d, f);
    }
  }
  if constexpr (S::kMins) {
    Floats less[NT][P];
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) less[t][p] = zero_floats();
    for (int k = g * S::kMinParts; k < (g + kBlockGroups) * S::kMinParts; ++k)
      for (int p = 0; p < P; ++p) {
        const Floats min = load_floats(w.panel[p].min + 16 * k);
        for (int t = 0; t < NT; ++t) less[t][p] = fma(min, broadcast(x.sum[t][k]), less[t][p]);
      }
    for (int p = 0; p < P; ++p)
      for (int t = 0; t < NT; ++t) h[t][p] = fnma(less[t][p], load_floats(w.panel[p].dmin + b), h[t][p]);
  }
}

template <class S, int P, int NT>
void tile(const TileScratch& w, const TileTokens& x, int n, bool first, int valid) {
  constexpr int step = S::kWhole ? kBlockGroups : kChunkGroups;
  for (int g = 0; g < n; g += step, first = false) {
    Floats h[NT][P];
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) {
        const float* at = x.out[t] + 16 * p;
        h[t][p] = S::kWhole || first ? zero_floats()
                  : p + 1 < P || valid == 16 ? load_floats(at) : load_first(at, valid);
      }
    add_groups<S, P, NT>(w, x, g, S::kWhole ? g + step : n, h);
    if constexpr (S::kWhole) add_block<S, P, NT>(w, x, g, first, valid, h);
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) {
        float* at = x.out[t] + 16 * p;
        p + 1 < P || valid == 16 ? store(at, h[t][p]) : store_first(at, h[t][p], valid);
      }
  }
}

template <class S, int P, int NT = kTileTokens>
TM_INLINE void run_tile(const TileScratch& w, const TileTokens& x, int nt, int n, bool first, int valid) {
  if constexpr (NT > 1) {
    if (nt < NT) return run_tile<S, P, NT - 1>(w, x, nt, n, first, valid);
  }
  tile<S, P, NT>(w, x, n, first, valid);
}

}  // namespace mill::TM_ISA::linear
