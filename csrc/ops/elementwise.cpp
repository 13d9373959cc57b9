// add, mul, where, unary, glu, copy: one rounding an element, broadcast, any strides.
#include <cmath>

#include "ops/codes.h"
#include "ops/kernels.h"
#include "ops/loops.h"
#include "ops/unary.h"

namespace mill::TM_ISA {
namespace {

constexpr int64_t kGluPiece = 1024;  // a multiple of 32

template <class F>
void binary(const Call& c, Pool& pool, const F& f) {
  const Tensor* const t[3] = {&c.out[0], &c.in[0], &c.in[1]};
  for_pieces(pool, t, 0.1, [&](float* const* p, int64_t first, int64_t last, const int64_t* s) {
    for (int64_t j = first; j < last; j += kLanes)
      store_row(p[0] + j, f(load_row(p[1], j, s[1], last - j), load_row(p[2], j, s[2], last - j)), last - j);
  });
}

template <class F>
void map(const Call& c, Pool& pool, double ns, const F& f) {
  const Tensor* const t[2] = {&c.out[0], &c.in[0]};
  for_pieces(pool, t, ns, [&](float* const* p, int64_t first, int64_t last, const int64_t* s) {
    for (int64_t j = first; j < last; j += kLanes) store_row(p[0] + j, f(load_row(p[1], j, s[1], last - j)), last - j);
  });
}

}  // namespace

void add(const Call& c, Pool& pool) {
  binary(c, pool, [](Lanes a, Lanes b) { return a + b; });
}

void mul(const Call& c, Pool& pool) {
  binary(c, pool, [](Lanes a, Lanes b) { return a * b; });
}

// in: cond, x, y.
void where(const Call& c, Pool& pool) {
  const Tensor* const t[4] = {&c.out[0], &c.in[0], &c.in[1], &c.in[2]};
  for_pieces(pool, t, 0.1, [&](float* const* p, int64_t first, int64_t last, const int64_t* s) {
    for (int64_t j = first; j < last; j += kLanes) {
      const int64_t left = last - j;
      const Mask m = differs(load_row(p[1], j, s[1], left), splat(0.0f));
      store_row(p[0] + j, select(m, load_row(p[2], j, s[2], left), load_row(p[3], j, s[3], left)), left);
    }
  });
}

// i: kind (UnaryKind); f: a, b.
void unary(const Call& c, Pool& pool) {
  const Lanes a = splat(c.f[0]), b = splat(c.f[1]);
  with_unary(static_cast<UnaryKind>(c.i[0]), a, b, [&](auto f, double ns) { map(c, pool, ns, f); });
}

// act(x) · y. i: kind; f: a, b. out: the product?, its codes?, scales?, sums? (then x, y are [N, F]).
void glu(const Call& c, Pool& pool) {
  const Lanes a = splat(c.f[0]), b = splat(c.f[1]);
  with_unary(static_cast<UnaryKind>(c.i[0]), a, b, [&](auto f, double ns) {
    if (!c.out[1]) return binary(c, pool, [&](Lanes x, Lanes y) { return f(x) * y; });
    const Tensor &x = c.in[0], &y = c.in[1], &out = c.out[0];
    const int64_t width = x.n[3], pieces = (width + kGluPiece - 1) / kGluPiece;
    split(pool, x.n[2] * pieces, (ns + 0.4) * kGluPiece, [&](int64_t begin, int64_t end, int) {
      alignas(64) float row[kGluPiece];
      for (int64_t item = begin; item < end; ++item) {
        const int64_t r = item / pieces, first = item % pieces * kGluPiece;
        const int64_t last = first + kGluPiece < width ? first + kGluPiece : width;
        const float *p = x.f32() + r * x.s[2], *q = y.f32() + r * y.s[2];
        float* to = out ? out.f32() + r * out.s[2] + first : row;
        for (int64_t j = first; j < last; j += kLanes)
          store_row(to + j - first, f(load_row(p, j, 1, last - j)) * load_row(q, j, 1, last - j), last - j);
        quantise_piece(c.out + 1, r, first, last, to);
      }
    });
  });
}

void copy(const Call& c, Pool& pool) {
  map(c, pool, 0.1, [](Lanes x) { return x; });
}

// Whole numbers as float32, or (i: n > 0) their remainders modulo n as whole numbers.
void convert(const Call& c, Pool&) {
  const Tensor &x = c.in[0], &y = c.out[0];
  const auto n = static_cast<int32_t>(c.i[0]);
  for (int64_t r = 0; r < y.rows(); ++r)
    for (int64_t j = 0; j < y.n[3]; ++j) {
      const int32_t v = x.i32()[x.row_offset(r) + j * x.s[3]];
      const int64_t to = y.row_offset(r) + j * y.s[3];
      if (n > 0)
        y.i32()[to] = (v % n + n) % n;
      else
        y.f32()[to] = static_cast<float>(v);
    }
}

}  // namespace mill::TM_ISA
