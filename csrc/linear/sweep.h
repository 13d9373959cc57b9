// The quantised GEMM around its register block (tile.h): which weights are decoded when, and what is where meanwhile.
//
//   for each block of about 256 tokens            their tiles' chunk, 250 KB, stays in the second cache,
//     for each sweep of panels                    so do the sweep's outputs,
//       for each chunk of 512 inputs              copied out of the rows once a sweep
//         for each pair of panels                 decoded once, 28 KB, into the first cache
//           for each tile of tokens               tile.h
//
// Meanwhile are fetched: the next tile's outputs into the first cache, the next pair's weights and the next chunk's rows
// into the second. The tiles' activations lie in the order in which they are read, which the processor fetches by itself.
#pragma once
#include "linear/decode.h"
#ifdef TM_TILES
#include "linear/amx.h"
#else
#include "linear/tile.h"
#endif

namespace mill::TM_ISA::linear {

inline constexpr int kTiles = (256 + kTileTokens - 1) / kTileTokens;  // of a block of tokens, at most
inline constexpr int64_t kSweepPanels = 48, kMostSweepPanels = 128;  // of a whole block; of fewer tokens more

#ifdef TM_TILES
template <class S> using BlockTokens = MatrixTokens<S>;
#else
template <class S> using BlockTokens = TileTokens<S>;
#endif

template <class S> struct SweepScratch {
  DecodedPanel panel[kTilePanels];
  BlockTokens<S> tiles[kTiles];
};

// n tokens in tiles of nearly the same size, rather than a small last one; the matrix unit takes as long for a smaller one.
struct TileCut {
  int64_t n, tiles;
  TM_INLINE explicit TileCut(int64_t n) : n(n), tiles(ceil_div(n, kTileTokens)) {}
  TM_INLINE int64_t begin(int64_t tile) const {
    if constexpr (kMatrixUnit) return tile < tiles ? kTileTokens * tile : n;
    else return n * tile / tiles;
  }
};

template <class F> class Sweep {
  using Decoded = DecodedShape<F>;
  using S = typename Decoded::Tile;

 public:
  Sweep(const Matrix& m, const Call& call, void* scratch)
      : m_(m), call_(call), cut_(call.n_tokens), s_(*static_cast<SweepScratch<S>*>(scratch)) {
    static_assert(sizeof(SweepScratch<S>) <= kScratchBytes);
  }

  void run(int64_t begin, int64_t end) {
    const int64_t blocks = ceil_div(cut_.tiles, kTiles);
    for (int64_t b = 0; b < blocks; ++b) {
      first_tile_ = cut_.tiles * b / blocks;
      tiles_ = cut_.tiles * (b + 1) / blocks - first_tile_;
      const int64_t room = kSweepPanels * kTiles / tiles_ & ~int64_t{1};
      const int64_t sweeps = ceil_div(end - begin, room < kMostSweepPanels ? room : kMostSweepPanels);
      const int64_t sweep = (ceil_div(end - begin, sweeps) + 1) & ~int64_t{1};
      for (int64_t p = begin; p < end; p += sweep) panels(p, end - p < sweep ? end : p + sweep);
    }
  }

 private:
  void panels(int64_t begin, int64_t end) {
    const int64_t groups = m_.columns / 32;
    const int pairs = static_cast<int>(ceil_div(end - begin, kTilePanels));
    for (int64_t g0 = 0; g0 < groups; g0 += kChunkGroups) {
      const int n = static_cast<int>(groups - g0 < kChunkGroups ? groups - g0 : kChunkGroups);
      copy_tokens(g0, n);
      const bool more = g0 + n < groups;
      for (int pair = 0; pair < pairs; ++pair) {
        const int64_t p = begin + pair * kTilePanels;
        // Lines of 64 inputs of the next chunk's rows that are fetched meanwhile.
        const int from = more ? n / 2 * pair / pairs : 0, to = more ? n / 2 * (pair + 1) / pairs : 0;
        const bool last = pair + 1 == pairs;
        const int64_t next = last ? begin : p + kTilePanels, next_g0 = last && more ? g0 + n : g0;
        const Rows rows{g0 + n, from, to};
        if (end - p >= kTilePanels) chunk<kTilePanels>(p, g0, n, next, next_g0, rows);
        else chunk<1>(p, g0, n, next, next_g0, rows);
      }
    }
  }

  struct Rows {  // of activations to fetch: groups from g0 on, lines [from, to)
    int64_t g0;
    int from, to;
  };

  void copy_tokens(int64_t g0, int n) {
    for (int64_t i = 0; i < tiles_; ++i) {
      BlockTokens<S>& x = s_.tiles[i];
      x.first = cut_.begin(first_tile_ + i);
      x.count = static_cast<int>(cut_.begin(first_tile_ + i + 1) - x.first);
      for (int t = 0; t < x.count; ++t)
        x.template set<Decoded>(t, call_.token(x.first + t, 32 * g0), n, call_.row(x.first + t));
    }
  }

  template <int P>
  void chunk(int64_t panel, int64_t g0, int n, int64_t next_panel, int64_t next_g0, const Rows& rows) {
    const int64_t bytes = panel_size(geometry_of<F>(), m_.columns), column = panel * kPanel;
    for (int p = 0; p < P; ++p) decode_groups<F>(m_.data + (panel + p) * bytes, m_.columns, g0, n, s_.panel[p]);
    const int valid = valid_rows(m_, panel + P - 1);
    constexpr int64_t chunk_lines = (kChunkGroups * 32 / F::kInputs * F::kBytes + 63) / 64;
    Ahead<P> ahead;
    for (int p = 0; p < P; ++p) ahead.at[p] = packed_groups<F>(m_.data + (next_panel + p) * bytes, m_.columns, next_g0);
    ahead.lines = static_cast<int>(ceil_div(chunk_lines, tiles_ * kChunkGroups));
    int64_t left = ceil_div(chunk_lines, ahead.lines * kChunkGroups);  // tiles that fetch weights
    for (int64_t i = 0; i < tiles_; ++i) {
      const BlockTokens<S>& x = s_.tiles[i];
      if (i + 1 < tiles_)
        for (int t = 0; t < s_.tiles[i + 1].count; ++t)
          for (int p = 0; p < P; ++p) prefetch(s_.tiles[i + 1].out[t] + column + p * kPanel);
      if (rows.from < rows.to)
        for (int t = 0; t < x.count; ++t) fetch_row(x.first + t, rows);
      if (left-- == 0) ahead.lines = 0;
      run_tile<S, P>(x.count, s_.panel, x, ahead, column, n, g0 == 0, valid);
      for (int p = 0; p < P; ++p) ahead.at[p] += 64 * ahead.lines * kChunkGroups;
    }
  }

  TM_INLINE void fetch_row(int64_t t, const Rows& rows) const {
    const Tokens x = call_.token(t, 32 * rows.g0);
    if (rows.from == 0) {
      prefetch_far(x.scales);
      prefetch_far(x.sums);
    }
    for (int line = rows.from; line < rows.to; ++line) prefetch_far(x.codes + 64 * line);
  }

  const Matrix& m_;
  const Call& call_;
  const TileCut cut_;
  SweepScratch<S>& s_;
  int64_t first_tile_ = 0, tiles_ = 0;
};

}  // namespace mill::TM_ISA::linear
