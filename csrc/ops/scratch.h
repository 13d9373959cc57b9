// Scratch of one thread: what one tile of queries works on, laid out in memory that the program set aside.
#pragma once

#include "ops/words.h"

namespace mill::TM_ISA {

struct Tile {
  float *q, *s, *k, *v;          // queries [n][K], scores twice [8][64], keys [K][64], values [64][Vp], as float32
  uint64_t* masks;               // [n]
  int64_t *first, *last;         // visible rows of each token
  float* block;                  // values of a block [8][Vp]
  Wide codes, weights;           // for integers and codes: queries [n][Kp], probabilities times scales [8][64],
  float* d;                      // scales of values [Vp / 32][64]
  Partial span, total;           // of a span of blocks, of all
};

inline int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// The same memory as rows of plain integers.
inline Words words_of(const Wide& x) { return {reinterpret_cast<int16_t*>(x.codes), x.scale, x.n}; }

// Floats that a tile of n queries and tokens needs.
inline int64_t tile_floats(int64_t n, int64_t width, int64_t v_stride) {
  const int64_t weights = (kBlock / 2 + 2) * kNarrowQ * (v_stride / 32 + 1);
  const int64_t coded = padded(n * padded(width) / 2) + padded(n * width / 32) + padded(n) + 2 * v_stride + weights;
  return padded(n * width) + 2 * kNarrowQ * kBlock + width * kBlock + (kBlock + kNarrowQ + 2 * n) * v_stride + 10 * padded(n) +
         coded + 3 * kBlock;
}

inline Tile lay_out(std::byte* memory, int64_t n, int64_t width, int64_t v_stride) {
  Tile tile;
  float* at = reinterpret_cast<float*>(memory);
  const auto take = [&](int64_t floats) {
    float* p = at;
    at += padded(floats);
    return p;
  };
  tile.masks = reinterpret_cast<uint64_t*>(take(2 * n));
  tile.first = reinterpret_cast<int64_t*>(take(2 * n));
  tile.last = reinterpret_cast<int64_t*>(take(2 * n));
  for (Partial* p : {&tile.span, &tile.total}) *p = {take(n), take(n), take(n * v_stride), v_stride};
  tile.q = take(n * width);
  tile.s = take(2 * kNarrowQ * kBlock);
  tile.block = take(kNarrowQ * v_stride);
  tile.k = take(width * kBlock);
  tile.v = take(kBlock * v_stride);
  const auto take_wide = [&](int64_t rows, int64_t numbers, int64_t groups) {
    auto* codes = reinterpret_cast<std::byte*>(take(rows * numbers / 2));
    return Wide{codes, reinterpret_cast<int32_t*>(take(rows * groups)), take(rows), numbers, groups};
  };
  tile.codes = take_wide(n, padded(width), width / 32);
  tile.weights = take_wide(kNarrowQ * ((v_stride + 31) / 32), kBlock, 1);
  tile.d = take((v_stride + 31) / 32 * kBlock);
  return tile;
}

}  // namespace mill::TM_ISA
