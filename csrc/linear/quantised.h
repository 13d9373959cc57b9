// The product for every quantised format (format.h): GEMV for few tokens, straight from the packed bits, and GEMM
// for many, from byte lines decoded into scratch. Both follow the one arithmetic of linear.h, group by group.
#pragma once
#include "linear/call.h"
#include "linear/format.h"
#include "linear/tile.h"

namespace mill::TM_ISA::linear {

inline constexpr int kGemvTokens = 4;       // up to here the packed bits are decoded once per call anyway
inline constexpr int64_t kPrefetch = 2048;  // bytes ahead: measured best for DRAM, see docs

template <class F> struct GroupShape {
  static constexpr bool kHalves = F::kGroup == 16, kMins = F::kMins, kWide = F::kWide;
  // Where wide codes are dotted as signed bytes, no offset is left to subtract.
  static constexpr int kOffset = (kWide && kSignedDot) ? 0 : F::kOffset;
};

// One panel, NT tokens. x[t] points at the first input of the token's row.
template <class F, int NT>
void gemv(const uint8_t* panel, int64_t columns, const Tokens* x, float* const* out, int valid) {
  using S = GroupShape<F>;
  constexpr Geometry geometry = geometry_of<F>();
  constexpr int per_block = F::kInputs / 32, scales_per_group = 32 / F::kGroup;
  constexpr int ahead = (F::kBytes / per_block + 63) / 64;
  const uint8_t* block = panel + front_bytes(geometry, columns);
  const int64_t groups = columns / 32;
  Floats f[NT];
  for (int t = 0; t < NT; ++t) f[t] = zero_floats();
  for (int64_t g0 = 0; g0 < groups; g0 += per_block, block += F::kBytes) {
    alignas(64) float scale[F::kInputs / F::kGroup * 16], min[F::kMins ? F::kInputs / F::kGroup * 16 : 16];
    F::scales(panel + g0 / per_block * F::kFront, block, scale, min);
    const int n = static_cast<int>(groups - g0 < per_block ? groups - g0 : per_block);
    for (int j = 0; j < n; ++j) {
      const int64_t g = g0 + j;
      for (int i = 0; i < ahead; ++i) prefetch(block + j * (F::kBytes / per_block) + kPrefetch + 64 * i);
      Ints acc[NT][2];
      for (int t = 0; t < NT; ++t) {
        const int s0 = x[t].sums[2 * g], s1 = x[t].sums[2 * g + 1];
        acc[t][0] = broadcast(-S::kOffset * (S::kHalves ? s0 : s0 + s1));
        acc[t][1] = broadcast(S::kHalves ? -S::kOffset * s1 : 0);
      }
      F::lines(block, j, [&](int line, Bytes codes) TM_LAMBDA {
        for (int t = 0; t < NT; ++t)
          acc[t][line >> 2] = dot<S::kWide>(acc[t][line >> 2], codes, load_i32(x[t].codes + 32 * g + 4 * line));
      });
      for (int t = 0; t < NT; ++t) {
        const float da = x[t].scales[g];
        for (int h = 0; h < scales_per_group; ++h) {
          const int k = 16 * (j * scales_per_group + h);
          const Ints sum = S::kHalves ? acc[t][h] : add(acc[t][0], acc[t][1]);
          f[t] = fma(to_floats(sum), mul(load_floats(scale + k), broadcast(da)), f[t]);
          if constexpr (S::kMins) {
            const int asum = S::kHalves ? x[t].sums[2 * g + h] : x[t].sums[2 * g] + x[t].sums[2 * g + 1];
            f[t] = fnma(load_floats(min + k), broadcast(static_cast<float>(asum) * da), f[t]);
          }
        }
      }
    }
  }
  for (int t = 0; t < NT; ++t) valid == 16 ? store(out[t], f[t]) : store_first(out[t], f[t], valid);
}

// Groups [g0, g0 + n) of 32 inputs of a panel -> byte lines [n][8][64], scales and mins [n * 32 / kGroup][16].
template <class F>
void decode_groups(const uint8_t* panel, int64_t columns, int64_t g0, int n, uint8_t* lines, float* scale, float* min) {
  constexpr int per_block = F::kInputs / 32, scales_per_group = 32 / F::kGroup;
  const int64_t b0 = g0 / per_block;
  const uint8_t* block = panel + front_bytes(geometry_of<F>(), columns) + b0 * F::kBytes;
  for (int j0 = 0; j0 < n; j0 += per_block, block += F::kBytes) {
    const int k = 16 * j0 * scales_per_group;
    F::scales(panel + (b0 + j0 / per_block) * F::kFront, block, scale + k, min + (F::kMins ? k : 0));
    for (int j = 0; j < per_block && j0 + j < n; ++j)
      F::lines(block, j, [&](int line, Bytes codes) TM_LAMBDA { store(lines + ((j0 + j) * 8 + line) * 64, codes); });
  }
}

template <class F> void decode_row(const uint8_t* panel, int row, int64_t columns, float* out) {
  constexpr int chunk = F::kInputs / 32, scales = F::kInputs / F::kGroup;
  alignas(64) uint8_t lines[F::kInputs * 16];
  alignas(64) float scale[scales * 16], min[scales * 16];
  for (int64_t g0 = 0; g0 < columns / 32; g0 += chunk) {
    const int n = static_cast<int>(columns / 32 - g0 < chunk ? columns / 32 - g0 : chunk);
    decode_groups<F>(panel, columns, g0, n, lines, scale, min);
    for (int k = 0; k < 32 * n; ++k) {
      const int code = lines[(k / 4) * 64 + 4 * row + k % 4] - F::kOffset;
      const float value = static_cast<float>(code) * scale[k / F::kGroup * 16 + row];
      out[32 * g0 + k] = F::kMins ? value - min[k / F::kGroup * 16 + row] : value;
    }
  }
}

template <class F, int NT> void gemv_panels(const Matrix& m, int64_t begin, int64_t end, const Call& call) {
  Tokens x[NT];
  float* out[NT];
  const int64_t bytes = panel_size(geometry_of<F>(), m.columns);
  for (int t = 0; t < NT; ++t) x[t] = call.token(t);
  for (int64_t p = begin; p < end; ++p) {
    for (int t = 0; t < NT; ++t) out[t] = call.row(t) + p * kPanel;
    gemv<F, NT>(m.data + p * bytes, m.columns, x, out, valid_rows(m, p));
  }
}

template <class F, int P>
void gemm_panels(const Matrix& m, int64_t panel, const Call& call, TileScratch& s) {
  using S = GroupShape<F>;
  const int64_t groups = m.columns / 32, bytes = panel_size(geometry_of<F>(), m.columns);
  const int tile = tile_tokens(call.n_tokens);
  for (int64_t g0 = 0; g0 < groups; g0 += kChunkGroups) {
    const int n = static_cast<int>(groups - g0 < kChunkGroups ? groups - g0 : kChunkGroups);
    for (int p = 0; p < P; ++p)
      decode_groups<F>(m.data + (panel + p) * bytes, m.columns, g0, n, s.lines[p], s.scale[p], s.min[p]);
    for (int64_t t0 = 0; t0 < call.n_tokens; t0 += tile) {
      const int nt = static_cast<int>(call.n_tokens - t0 < tile ? call.n_tokens - t0 : tile);
      TileTokens x;
      for (int t = 0; t < nt; ++t) {
        x.out[t] = call.row(t0 + t) + panel * kPanel;
        x.set<S::kHalves, S::kMins, S::kOffset>(t, call.token(t0 + t, 32 * g0), n);
      }
      run_tile<S, P>(s, x, nt, n, g0 == 0, valid_rows(m, panel + P - 1));
    }
  }
}

template <class F>
void multiply(const Matrix& m, int64_t begin, int64_t end, const Activations& x, const int32_t* x_rows,
              int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void* scratch) {
  const Call call{x, x_rows, n_tokens, out, out_stride, out_rows};
  switch (n_tokens) {
    case 0: return;
    case 1: return gemv_panels<F, 1>(m, begin, end, call);
    case 2: return gemv_panels<F, 2>(m, begin, end, call);
    case 3: return gemv_panels<F, 3>(m, begin, end, call);
    case 4: return gemv_panels<F, 4>(m, begin, end, call);
    default: break;
  }
  TileScratch& s = *static_cast<TileScratch*>(scratch);
  int64_t p = begin;
  for (; p + kTilePanels <= end; p += kTilePanels) gemm_panels<F, kTilePanels>(m, p, call, s);
  for (; p < end; ++p) gemm_panels<F, 1>(m, p, call, s);
}

template <class F> constexpr FormatKernels quantised(Type type) {
  return {type, true, geometry_of<F>(), pack_blocks<F>, multiply<F>, decode_row<F>};
}

}  // namespace mill::TM_ISA::linear
