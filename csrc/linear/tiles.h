// The matrix unit of AMX: eight tiles of up to 16 rows x 64 bytes. Tiles are named by template arguments. Two versions: the
// instructions, and (TM_TILES_EMULATED) loops on arrays that do the same, so that any machine can test what is built on them.
//
//   dot<C, A, B>    C[m][n] += sum over k, i < 4 of A[m][4 k + i] x B[k][4 n + i]        signed bytes, int32 sums, exact
//
//   A  rows m: tokens      | 4 inputs | 4 inputs | ...         B  rows k | 4 inputs of output 0 | of output 1 | ... of 15 |
#pragma once
#include "simd/simd.h"

namespace mill::TM_ISA {

inline constexpr int kTileRows = 16, kTileRowBytes = 64, kTileCount = 8;

struct alignas(64) TileShapes {  // as the instruction wants it
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  TM_INLINE void set(int tile, int height, int width) {
    rows[tile] = static_cast<uint8_t>(height);
    row_bytes[tile] = static_cast<uint16_t>(width);
  }
};

#ifdef TM_TILES_EMULATED

struct TileState {
  TileShapes shapes;
  alignas(64) uint8_t at[kTileCount][kTileRows][kTileRowBytes];
};
inline thread_local TileState tiles;

TM_INLINE void configure_tiles(const TileShapes& shapes) {
  tiles.shapes = shapes;
  std::memset(tiles.at, 0, sizeof(tiles.at));
}
TM_INLINE void release_tiles() { tiles.shapes = TileShapes{}; }
template <int t> TM_INLINE void zero_tile() { std::memset(tiles.at[t], 0, sizeof(tiles.at[t])); }

// Rows are `stride` bytes apart. What lies beyond a tile's shape becomes zero.
template <int t> inline void load_tile(const void* from, int64_t stride) {
  zero_tile<t>();
  for (int r = 0; r < tiles.shapes.rows[t]; ++r)
    std::memcpy(tiles.at[t][r], static_cast<const uint8_t*>(from) + r * stride, tiles.shapes.row_bytes[t]);
}
template <int t> inline void store_tile(void* to, int64_t stride) {
  for (int r = 0; r < tiles.shapes.rows[t]; ++r)
    std::memcpy(static_cast<uint8_t*>(to) + r * stride, tiles.at[t][r], tiles.shapes.row_bytes[t]);
}
template <int c, int a, int b> inline void dot_tiles() {
  for (int m = 0; m < tiles.shapes.rows[c]; ++m) {
    int32_t sums[16];
    std::memcpy(sums, tiles.at[c][m], sizeof(sums));
    for (int k = 0; k < tiles.shapes.row_bytes[a]; ++k)
      for (int n = 0; n < tiles.shapes.row_bytes[c] / 4; ++n)
        sums[n] += static_cast<int8_t>(tiles.at[a][m][k]) * static_cast<int8_t>(tiles.at[b][k / 4][4 * n + k % 4]);
    std::memcpy(tiles.at[c][m], sums, sizeof(sums));
  }
}

#else

// Written out: compilers' own functions take no template arguments, and one of them lets the shapes be stored too late.
TM_INLINE void configure_tiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
TM_INLINE void release_tiles() { asm volatile("tilerelease"); }
template <int t> TM_INLINE void zero_tile() { asm volatile("tilezero %%tmm%c0" : : "i"(t)); }
template <int t> TM_INLINE void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(t) : "memory");
}
template <int t> TM_INLINE void store_tile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(t) : "memory");
}
template <int c, int a, int b> TM_INLINE void dot_tiles() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}

#endif

// Shapes that hold while this lives: a thread that keeps them has 8 KB more to save whenever another takes its place.
class TileUse {
 public:
  explicit TileUse(const TileShapes& shapes) { configure_tiles(shapes); }
  ~TileUse() { release_tiles(); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;
};

}  // namespace mill::TM_ISA
