// The register block of the quantised GEMM: P panels x NT tokens over a chunk of up to 512 inputs, from decoded
// byte lines. It knows no format, only the shape of a group (halves: two scales for each 32 inputs; mins; wide).
#pragma once
#include "linear/call.h"
#include "linear/format.h"

namespace mill::TM_ISA::linear {

// The shape of a group; formats that share it share the kernels.
template <bool halves, bool mins, bool wide> struct GroupShape {
  static constexpr bool kHalves = halves, kMins = mins, kWide = wide;
};

inline constexpr int kChunkGroups = 16;  // 512 inputs: two panels of lines are 16 KB

struct TileScratch {  // decoded weights of kTilePanels panels, one chunk
  alignas(64) uint8_t lines[2][kChunkGroups * 8 * 64];
  alignas(64) float scale[2][kChunkGroups * 2 * 16];
  alignas(64) float min[2][kChunkGroups * 2 * 16];
};
static_assert(sizeof(TileScratch) <= kScratchBytes);

struct TileTokens {  // activations of a tile, and what the groups need of them
  const int8_t* codes[kTileTokens];
  const int8_t* next[kTileTokens];  // codes of the next tile, fetched ahead: rows are short and far apart
  float* out[kTileTokens];
  alignas(64) float scale[kTileTokens][kChunkGroups];
  alignas(64) int32_t start[kTileTokens][2 * kChunkGroups];  // -offset * sum of codes
  alignas(64) float sum[kTileTokens][2 * kChunkGroups];      // float(sum of codes) * scale

  template <class S> TM_INLINE void set(int t, const Tokens& x, int n) {
    n == kChunkGroups ? fill<S>(t, x, kChunkGroups) : fill<S>(t, x, n);
  }

 private:
  template <class S> TM_INLINE void fill(int t, const Tokens& x, int n) {
    codes[t] = x.codes;
    for (int g = 0; g < n; ++g) scale[t][g] = x.scales[g];
    prepare<S>(x, n, start[t], sum[t]);
  }
};

template <class S, int P, int NT>
void tile(const TileScratch& w, const TileTokens& x, int n, bool first, int valid) {
  Floats f[NT][P];
  for (int t = 0; t < NT; ++t)
    for (int p = 0; p < P; ++p) {
      const float* at = x.out[t] + 16 * p;
      f[t][p] = first ? zero_floats() : p + 1 < P || valid == 16 ? load_floats(at) : load_first(at, valid);
    }
  constexpr int parts = S::kHalves ? 2 : 1, lines = 8 / parts;
  for (int g = 0; g < n; ++g) {
    if (g % 2 == 0)
      for (int t = 0; t < NT; ++t) prefetch(x.next[t] + 32 * g);
#pragma GCC unroll 2
    for (int h = 0; h < parts; ++h) {
      const int k = g * parts + h;
      Ints acc[NT][P];
      for (int t = 0; t < NT; ++t)
        for (int p = 0; p < P; ++p) acc[t][p] = broadcast(x.start[t][k]);
#pragma GCC unroll 8
      for (int i = 0; i < lines; ++i) {
        Bytes codes[P];
        for (int p = 0; p < P; ++p) codes[p] = load_bytes(w.lines[p] + (k * lines + i) * 64);
        for (int t = 0; t < NT; ++t) {
          const int32_t a = load_i32(x.codes[t] + 4 * (k * lines + i));
          for (int p = 0; p < P; ++p) acc[t][p] = dot<S::kWide>(acc[t][p], codes[p], a);
        }
      }
      for (int p = 0; p < P; ++p) {
        const Floats scale = load_floats(w.scale[p] + 16 * k);
        for (int t = 0; t < NT; ++t) {
          f[t][p] = fma(to_floats(acc[t][p]), mul(scale, broadcast(x.scale[t][g])), f[t][p]);
          if constexpr (S::kMins) f[t][p] = fnma(load_floats(w.min[p] + 16 * k), broadcast(x.sum[t][k]), f[t][p]);
        }
      }
    }
  }
  for (int t = 0; t < NT; ++t)
    for (int p = 0; p < P; ++p) {
      float* at = x.out[t] + 16 * p;
      p + 1 < P || valid == 16 ? store(at, f[t][p]) : store_first(at, f[t][p], valid);
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
