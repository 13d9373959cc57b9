// The register block of the quantised GEMM with AMX, in place of tile.h's: 16 tokens x one panel over a chunk of up to 512
// inputs. The matrix unit makes the exact sums of one group (of 32 or 16 inputs), the vector unit adds them as everywhere
// (shape.h): a group's sums go by way of memory from one to the other, and kLead of them are on their way.
//
//   A  16 tokens x 32 codes     B  8 lines of a panel, less their offset     C  16 tokens x 16 outputs, int32
//
//   matrix      g: A B C ->   g + 1   g + 2   g + 3   g + 4     -> a ring of sums, 1 KB each
//   vector                                    g       g + 1     h[16 tokens] in registers
//
// 16 tokens x 16 outputs x 32 inputs should cost 16 cycles for the dots, 16 for storing C, and 32 multiply-adds, which take 32
// cycles while dots run (then the vector unit does one a cycle) and 16 else: 32 to 48 in all, if nothing else stalls, and
// twice that with a scale for each 16 inputs. That was not measured; tile.h takes 95 to 125.
#pragma once
#include "linear/tile.h"
#include "linear/tiles.h"

namespace mill::TM_ISA::linear {

static_assert(kTileTokens == kTileRows && kPanel * 4 == kTileRowBytes);

inline constexpr int kLead = 3;  // parts whose sums are made before they are added: stores need that long to reach the cache
template <class S> inline constexpr int kRing = S::kJoined ? 8 : 4;  // a power of two above kLead; one more is kept where joined

// One chunk of a tile's activations: those of a group lie together, as a tile of the matrix unit.
template <class S> struct MatrixTokens {
  static constexpr int kBytes = 32 / S::kParts;
  alignas(64) int8_t codes[kChunkGroups * S::kParts][kTileTokens][kBytes];
  alignas(64) float scale[kTileTokens][kChunkGroups];
  float sum[kTileTokens][S::kMins ? S::kMinParts * kChunkGroups : 1];
  float* out[kTileTokens];  // rows
  int64_t first;            // token
  int count;

  template <class F> TM_INLINE void set(int t, const Tokens& x, int n, float* row) {
    for (int k = 0; k < n * S::kParts; ++k) std::memcpy(codes[k][t], x.codes + kBytes * k, kBytes);
    std::memcpy(scale[t], x.scales, static_cast<size_t>(n) * sizeof(float));
    int32_t start[S::kParts * kChunkGroups];  // not wanted: codes are signed, so no sum has an offset
    prepare<F>(x, n, start, sum[t]);
    out[t] = row;
  }
};

// The shapes of tiles 0 and 1 (sums), 2 and 3 (tokens), 4 and 5 (weights).
template <class S> TileShapes shapes_of() {
  TileShapes shapes;
  for (int i = 0; i < 2; ++i) {
    shapes.set(i, kTileTokens, kTileRowBytes);
    shapes.set(2 + i, kTileTokens, MatrixTokens<S>::kBytes);
    shapes.set(4 + i, MatrixTokens<S>::kBytes / 4, kTileRowBytes);
  }
  return shapes;
}

using Sums = int32_t[kTileTokens][kPanel];

alignas(64) inline constexpr int32_t kMagicLine[kPanel] = {
    kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits,
    kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits, kMagicBits,
};

// The sums of part k, from where accumulators start (shape.h). Odd and even parts use tiles of their own.
template <class S, int odd> TM_INLINE void make_sums(const DecodedPanel& w, const MatrixTokens<S>& x, int k, Sums& sums) {
  load_tile<2 + odd>(x.codes[k], x.kBytes);
  load_tile<4 + odd>(w.lines + 16 * x.kBytes * k, kTileRowBytes);
  if constexpr (S::kStart != 0) load_tile<odd>(kMagicLine, 0);
  else zero_tile<odd>();
  dot_tiles<odd, 2 + odd, 4 + odd>();
  store_tile<odd>(sums, kTileRowBytes);
}

// Adds part k to h; where parts are joined, both with the second one.
template <class S, int NT>
TM_INLINE void add_sums(const DecodedPanel& w, const MatrixTokens<S>& x, int k, const Sums (&ring)[kRing<S>],
                        Floats (&h)[NT][1]) {
  if (S::kJoined && k % 2 == 0) return;
  const int g = k / S::kParts;
  const auto part = [&](int i, int t) TM_LAMBDA {
    return product<S>(load_ints(ring[i % kRing<S>][t]), load_floats(w.scale + 16 * i), load_floats(w.less + 16 * i));
  };
  unroll<NT>([&](auto t) TM_LAMBDA {
    const Floats each = S::kJoined ? add(part(k - 1, t), part(k, t)) : part(k, t);
    h[t][0] = fma(each, broadcast(x.scale[t][g]), h[t][0]);
  });
  if constexpr (S::kMins && !S::kWhole) {
    const Floats min = load_floats(w.min + 16 * g);
    unroll<NT>([&](auto t) TM_LAMBDA { h[t][0] = fnma(min, broadcast(x.sum[t][g]), h[t][0]); });
  }
}

// n groups of a chunk for one panel; NT is the number of tokens or more.
template <class S, int NT>
void matrix_tile(const DecodedPanel& w, const MatrixTokens<S>& x, const uint8_t* ahead, int ahead_lines, int64_t column, int n,
                 bool first, int valid) {
  constexpr int step = (S::kWhole ? kBlockGroups : kChunkGroups) * S::kParts;
  alignas(64) Sums ring[kRing<S>];
  const int parts = n * S::kParts;
  const auto make = [&](int k) TM_LAMBDA {
    if (k >= parts) return;
    k % 2 != 0 ? make_sums<S, 1>(w, x, k, ring[k % kRing<S>]) : make_sums<S, 0>(w, x, k, ring[k % kRing<S>]);
  };
  float* out[NT];
  for (int t = 0; t < NT; ++t) out[t] = x.out[t < x.count ? t : x.count - 1] + column;
  for (int k = 0; k < kLead; ++k) make(k);
  for (int begin = 0; begin < parts; begin += step, first = false) {
    Floats h[NT][1];
    for (int t = 0; t < NT; ++t)
      h[t][0] = S::kWhole || first ? zero_floats() : valid == 16 ? load_floats(out[t]) : load_first(out[t], valid);
    for (int k = begin; k < begin + step && k < parts; ++k) {
      if (k % S::kParts == 0)
        for (int i = 0; i < ahead_lines; ++i) prefetch_far(ahead + 64 * (ahead_lines * (k / S::kParts) + i));
      make(k + kLead);
      add_sums<S, NT>(w, x, k, ring, h);
    }
    if constexpr (S::kWhole) add_block<S, 1, NT>(&w, x, out, begin / S::kParts, first, valid, h);
    for (int t = 0; t < NT; ++t)
      if (t < x.count) valid == 16 ? store(out[t], h[t][0]) : store_first(out[t], h[t][0], valid);
  }
}

template <class S, int P>
void run_tile(int nt, const DecodedPanel* w, const MatrixTokens<S>& x, const Ahead<P>& ahead, int64_t column, int n, bool first,
              int valid) {
  constexpr int half = kTileTokens / 2;
  for (int p = 0; p < P; ++p) {
    const int rows = p + 1 < P ? 16 : valid;
    if (nt > half) matrix_tile<S, kTileTokens>(w[p], x, ahead.at[p], ahead.lines, column + 16 * p, n, first, rows);
    else matrix_tile<S, half>(w[p], x, ahead.at[p], ahead.lines, column + 16 * p, n, first, rows);
  }
}

}  // namespace mill::TM_ISA::linear
