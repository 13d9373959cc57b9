// Walks the rows of several broadcast tensors together, axes merged where every operand allows it.
#pragma once

#include "ops/lanes.h"
#include "ops/op.h"

#ifndef TM_INLINE
#define TM_INLINE inline __attribute__((always_inline))
#endif

namespace mill::TM_ISA {

constexpr int64_t kPiece = 4096;  // elements of a row that one work item takes

// Axes of operand 0 (the output); the others have the same n, with stride 0 where they broadcast.
template <int N>
struct Loop {
  int64_t n[4];
  int64_t s[N][4];

  TM_INLINE explicit Loop(const Tensor* const (&t)[N]) {
    int64_t full[N][4];
    for (int a = 0; a < 4; ++a) {
      n[a] = t[0]->n[a];
      for (int k = 0; k < N; ++k) full[k][a] = t[k]->n[a] == 1 ? 0 : t[k]->s[a];
    }
    for (int k = 0; k < N; ++k)
      for (int a = 0; a < 4; ++a) s[k][a] = full[k][a];
    for (int a = 2; a >= 0; --a) merge(a);
  }

  // Pulls axis a into the last one if all operands step evenly across both.
  TM_INLINE void merge(int a) {
    if (n[a] == 1) return;
    for (int b = a + 1; b < 3; ++b)
      if (n[b] != 1) return;
    for (int k = 0; k < N; ++k)
      if (n[3] != 1 && s[k][a] != s[k][3] * n[3]) return;
    for (int k = 0; k < N; ++k)
      if (n[3] == 1) s[k][3] = s[k][a];
    n[3] *= n[a];
    n[a] = 1;
  }

  TM_INLINE int64_t rows() const { return n[0] * n[1] * n[2]; }
  TM_INLINE int64_t offset(int k, int64_t row) const {
    const int64_t c = row % n[2], rest = row / n[2];
    return rest / n[1] * s[k][0] + rest % n[1] * s[k][1] + c * s[k][2];
  }
};

// Lanes of a row whose elements lie `stride` apart (0: one value for all), starting at element j; `left` remain.
TM_INLINE Lanes load_row(const float* p, int64_t j, int64_t stride, int64_t left) {
  if (stride == 1) return left >= kLanes ? load(p + j) : load(p + j, static_cast<int>(left));
  if (stride == 0) return splat(*p);
  float v[kLanes] = {};
  for (int i = 0; i < kLanes && i < left; ++i) v[i] = p[(j + i) * stride];
  return load(v);
}
TM_INLINE void store_row(float* p, Lanes v, int64_t left) {
  if (left >= kLanes) return store(p, v);
  store(p, v, static_cast<int>(left));
}

// f(pointers of the N operands at a row's piece, first element, end, strides of the last axis) for every piece.
template <int N, class F>
TM_INLINE void for_pieces(Pool& pool, const Tensor* const (&t)[N], double ns_each, const F& f) {
  const Loop<N> loop(t);
  const int64_t pieces = (loop.n[3] + kPiece - 1) / kPiece;
  const int64_t length = pieces == 1 ? loop.n[3] : kPiece;
  split(pool, loop.rows() * pieces, ns_each * static_cast<double>(length), [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / pieces, first = item % pieces * kPiece;
      const int64_t last = first + length < loop.n[3] ? first + length : loop.n[3];
      float* p[N];
      int64_t stride[N];
      for (int k = 0; k < N; ++k) {
        p[k] = t[k]->f32() + loop.offset(k, row);
        stride[k] = loop.s[k][3];
      }
      f(p, first, last, stride);
    }
  });
}

}  // namespace mill::TM_ISA
