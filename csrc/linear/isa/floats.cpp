// Kernels of F32: for each 32 inputs an even and an odd chain of fma from zero, added to each other, then to the total.
#include "linear/formats/floats.h"

#include "linear/call.h"

namespace mill::TM_ISA::linear {
namespace {

inline constexpr int64_t kChunk = 128;      // inputs at a time: two panels of them are 16 KB, a third of the L1
inline constexpr int64_t kPrefetch = 2048;  // bytes ahead, of weights that come from memory

struct Tile {  // tokens of a register block
  const float* x[kTileTokens];
  float* out[kTileTokens];
  const float* next[kTileTokens];  // x of the next tile, fetched ahead: its rows are short and far apart
};

// P panels (weights at w[p], one line for each input) x NT tokens, inputs [0, n). The totals stay in memory, touched
// once for each 32 inputs: the registers are full of chains. `ahead`: the first tokens fetch weights for all.
template <int P, int NT, bool ahead>
TM_INLINE void chains(const float* const* w, const Tile& tile, int64_t n, Floats (*total)[P]) {
  const float* const* x = tile.x;
  for (int64_t k0 = 0; k0 < n; k0 += 32) {
    const int64_t end = n - k0 < 32 ? n : k0 + 32;
    for (int t = 0; t < NT; ++t) {
      prefetch(tile.next[t] + k0);
      prefetch(tile.next[t] + k0 + 16);
    }
    Floats even[NT][P], odd[NT][P];
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) even[t][p] = odd[t][p] = zero_floats();
    int64_t k = k0;
    for (; k + 1 < end; k += 2) {
      Floats w0[P], w1[P];
      for (int p = 0; p < P; ++p) {
        const float* at = w[p] + 16 * k;
        if constexpr (ahead) {
          prefetch(at + kPrefetch / 4);
          prefetch(at + kPrefetch / 4 + 16);
        }
        w0[p] = load_floats(at);
        w1[p] = load_floats(at + 16);
      }
      for (int t = 0; t < NT; ++t) {
        const Floats x0 = broadcast(x[t][k]);
        for (int p = 0; p < P; ++p) even[t][p] = fma(w0[p], x0, even[t][p]);
        const Floats x1 = broadcast(x[t][k + 1]);
        for (int p = 0; p < P; ++p) odd[t][p] = fma(w1[p], x1, odd[t][p]);
      }
    }
    if (k < end)
      for (int p = 0; p < P; ++p)
        for (int t = 0; t < NT; ++t) even[t][p] = fma(load_floats(w[p] + 16 * k), broadcast(x[t][k]), even[t][p]);
    for (int t = 0; t < NT; ++t)
      for (int p = 0; p < P; ++p) total[t][p] = add(total[t][p], add(even[t][p], odd[t][p]));
  }
}

template <int P, int NT, bool ahead>
void block(const float* const* w, const Tile& tile, int64_t n, bool first, int valid) {
  Floats total[NT][P];
  for (int t = 0; t < NT; ++t)
    for (int p = 0; p < P; ++p) {
      const float* at = tile.out[t] + 16 * p;
      total[t][p] = first ? zero_floats() : p + 1 < P || valid == 16 ? load_floats(at) : load_first(at, valid);
    }
  chains<P, NT, ahead>(w, tile, n, total);
  for (int t = 0; t < NT; ++t)
    for (int p = 0; p < P; ++p) {
      float* at = tile.out[t] + 16 * p;
      p + 1 < P || valid == 16 ? store(at, total[t][p]) : store_first(at, total[t][p], valid);
    }
}

template <int P, bool ahead, int NT = kTileTokens>
void block_of(int nt, const float* const* w, const Tile& tile, int64_t n, bool first, int valid) {
  if constexpr (NT > 1) {
    if (nt < NT) return block_of<P, ahead, NT - 1>(nt, w, tile, n, first, valid);
  }
  block<P, NT, ahead>(w, tile, n, first, valid);
}

template <int P>
void panels(const Matrix& m, int64_t panel, const Call& call) {
  const int64_t bytes = panel_size(kFloatGeometry, m.columns);
  const int64_t chunk = call.n_tokens <= kTileTokens ? m.columns : kChunk;
  const int nt_max = tile_tokens(call.n_tokens), valid = valid_rows(m, panel + P - 1);
  for (int64_t k0 = 0; k0 == 0 || k0 < m.columns; k0 += chunk) {
    const int64_t n = m.columns - k0 < chunk ? m.columns - k0 : chunk;
    const float* w[P];
    for (int p = 0; p < P; ++p) w[p] = reinterpret_cast<const float*>(m.data + (panel + p) * bytes) + 16 * k0;
    for (int64_t t0 = 0; t0 < call.n_tokens; t0 += nt_max) {
      const int nt = static_cast<int>(call.n_tokens - t0 < nt_max ? call.n_tokens - t0 : nt_max);
      Tile tile;
      for (int t = 0; t < nt; ++t) {
        const int64_t i = t0 + t, next = i + nt_max < call.n_tokens ? i + nt_max : i;
        tile.x[t] = call.values(i) + k0;
        tile.out[t] = call.row(i) + panel * kPanel;
        tile.next[t] = call.values(next) + k0;
        for (int p = 0; p < P; ++p) prefetch(call.row(next) + (panel + p) * kPanel);
      }
      if (t0 == 0) block_of<P, true>(nt, w, tile, n, k0 == 0, valid);
      else block_of<P, false>(nt, w, tile, n, k0 == 0, valid);
    }
  }
}

void multiply(const Matrix& m, int64_t begin, int64_t end, const Activations& x, const int32_t* x_rows,
              int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void*) {
  if (n_tokens == 0) return;
  const Call call{x, x_rows, n_tokens, out, out_stride, out_rows};
  int64_t p = begin;
  for (; p + kTilePanels <= end; p += kTilePanels) panels<kTilePanels>(m, p, call);
  for (; p < end; ++p) panels<1>(m, p, call);
}

}  // namespace

extern const FormatKernels kFloats[] = {{Type::F32, false, kFloatGeometry, pack_floats, multiply, decode_float_row}, {}};

}  // namespace mill::TM_ISA::linear
