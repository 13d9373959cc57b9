// rms_norm, layer_norm, softmax, sum, sinkhorn, hadamard: reductions in one fixed order, whatever the number of rows.
#include <cmath>

#include "ops/codes.h"
#include "ops/kernels.h"
#include "ops/loops.h"
#include "ops/vmath.h"

namespace mill::TM_ISA {
namespace {

// Σ f(x) over a row: four accumulators of 16 lanes, then (0+1)+(2+3), then the tree of lanes.
template <class F>
TM_INLINE float reduce(const float* x, int64_t n, const F& f) {
  Lanes acc[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes)
    for (int k = 0; k < 4; ++k) acc[k] = f(load(x + j + k * kLanes), acc[k]);
  for (int k = 0; j < n; j += kLanes, ++k) {
    const int left = n - j < kLanes ? static_cast<int>(n - j) : kLanes;
    const Lanes next = f(load(x + j, left), acc[k]);
    acc[k] = left == kLanes ? next : select(mask_bits((1u << left) - 1), next, acc[k]);
  }
  return sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

TM_INLINE float row_max(const float* x, int64_t n) {
  Lanes best = splat(-INFINITY);
  for (int64_t j = 0; j < n; j += kLanes) {
    const int left = n - j < kLanes ? static_cast<int>(n - j) : kLanes;
    const Lanes v = load(x + j, left);
    best = max(best, left == kLanes ? v : select(mask_bits((1u << left) - 1), v, splat(-INFINITY)));
  }
  return max_lanes(best);
}

// One pass over outer × inner columns of a middle axis of length m: f(first element, stride of the axis, lanes).
template <class F>
void columns(const Call& c, Pool& pool, int axis, double ns, const F& f) {
  const Tensor &x = c.in[0], &y = c.out[0];
  int64_t outer = 1;
  for (int a = 0; a < 3; ++a)
    if (a != axis) outer *= x.n[a];
  const int64_t inner = x.n[3], blocks = (inner + kLanes - 1) / kLanes;
  split(pool, outer * blocks, ns * kLanes * static_cast<double>(x.n[axis]), [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      int64_t o = item / blocks, from = 0, to = 0;
      const int64_t j = item % blocks * kLanes;
      for (int a = 2; a >= 0; --a) {
        if (a == axis) continue;
        from += o % x.n[a] * x.s[a];
        to += o % x.n[a] * y.s[a];
        o /= x.n[a];
      }
      f(x.f32() + from + j, x.s[axis], y.f32() + to + j, y.s[axis], inner - j);
    }
  });
}

}  // namespace

// in: x, w? (broadcast to x), y? (x + y is normed). i: 1 if over the sum; f: eps.
// out: the norm?, its codes?, scales?, sums?, x + y?. What nobody reads is not stored.
void rms_norm(const Call& c, Pool& pool) {
  const Tensor &x = c.in[0], &w = c.in[1], &more = c.in[2], &y = c.out[0], &total = c.out[4];
  const int64_t n = x.n[3];
  const bool codes = static_cast<bool>(c.out[1]);
  const float count = c.i[0] ? 1.0f : static_cast<float>(n), eps = c.f[0];
  split(pool, x.rows(), 0.3 * static_cast<double>(n) + 5, [&](int64_t begin, int64_t end, int thread) {
    float* row = reinterpret_cast<float*>(pool.scratch(thread));
    for (int64_t r = begin; r < end; ++r) {
      const float* p = x.f32() + x.row_offset(r);
      float* q = y ? y.f32() + y.row_offset(r) : row;
      if (more) {
        const float* other = more.f32() + more.row_offset(r);
        float* to = total ? total.f32() + total.row_offset(r) : row;
        for (int64_t j = 0; j < n; j += kLanes)
          store_row(to + j, load_row(p, j, 1, n - j) + load_row(other, j, 1, n - j), n - j);
        p = to;
      }
      const float squares = reduce(p, n, [](Lanes v, Lanes acc) { return fma(v, v, acc); });
      const Lanes scale = splat(1.0f / std::sqrt(squares / count + eps));
      const float* g = w ? w.f32() + w.row_offset(r) : nullptr;
      for (int64_t j = 0; j < n; j += kLanes) {
        const Lanes v = load_row(p, j, 1, n - j) * scale;
        store_row(q + j, g ? v * load_row(g, j, w.s[3], n - j) : v, n - j);
      }
      if (codes) quantise_piece(c.out + 1, r, 0, n, q);
    }
  });
}

// in: x, w?, b? (broadcast). f: eps.
void layer_norm(const Call& c, Pool& pool) {
  const Tensor &x = c.in[0], &w = c.in[1], &b = c.in[2], &y = c.out[0];
  const int64_t n = x.n[3];
  split(pool, x.rows(), 0.25 * static_cast<double>(n) + 5, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* p = x.f32() + x.row_offset(r);
      float* q = y.f32() + y.row_offset(r);
      const Lanes mean = splat(reduce(p, n, [](Lanes v, Lanes acc) { return acc + v; }) / static_cast<float>(n));
      const float var = reduce(p, n, [=](Lanes v, Lanes acc) { return fma(v - mean, v - mean, acc); }) / static_cast<float>(n);
      const Lanes scale = splat(1.0f / std::sqrt(var + c.f[0]));
      for (int64_t j = 0; j < n; j += kLanes) {
        Lanes v = (load_row(p, j, 1, n - j) - mean) * scale;
        if (w) v = v * load_row(w.f32() + w.row_offset(r), j, w.s[3], n - j);
        if (b) v = v + load_row(b.f32() + b.row_offset(r), j, b.s[3], n - j);
        store_row(q + j, v, n - j);
      }
    }
  });
}

// i: axis (0…3, aligned at the last).
void softmax(const Call& c, Pool& pool) {
  const int axis = static_cast<int>(c.i[0]);
  const Tensor &x = c.in[0], &y = c.out[0];
  if (axis == 3) {
    const int64_t n = x.n[3];
    return split(pool, x.rows(), 1.0 * static_cast<double>(n) + 5, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const float* p = x.f32() + x.row_offset(r);
        float* q = y.f32() + y.row_offset(r);
        const float top = row_max(p, n);
        const Lanes most = splat(top == -INFINITY ? 0.0f : top);
        for (int64_t j = 0; j < n; j += kLanes) store_row(q + j, exp(load_row(p, j, 1, n - j) - most), n - j);
        const float all = reduce(q, n, [](Lanes v, Lanes acc) { return acc + v; });
        const Lanes total = splat(all > 0.0f ? all : 1.0f);
        for (int64_t j = 0; j < n; j += kLanes) store_row(q + j, load_row(q, j, 1, n - j) / total, n - j);
      }
    });
  }
  const int64_t m = x.n[axis];
  columns(c, pool, axis, 1.0, [m](const float* p, int64_t sp, float* q, int64_t sq, int64_t left) {
    Lanes most = splat(-INFINITY), total = splat(0.0f);
    for (int64_t k = 0; k < m; ++k) most = max(most, load_row(p + k * sp, 0, 1, left));
    most = select(less(splat(-INFINITY), most), most, splat(0.0f));
    for (int64_t k = 0; k < m; ++k) {
      const Lanes e = exp(load_row(p + k * sp, 0, 1, left) - most);
      total = total + e;
      store_row(q + k * sq, e, left);
    }
    for (int64_t k = 0; k < m; ++k) store_row(q + k * sq, load_row(q + k * sq, 0, 1, left) / select(less(splat(0.0f), total), total, splat(1.0f)), left);
  });
}

// out: x with n[axis] = 1. i: axis.
void sum(const Call& c, Pool& pool) {
  const int axis = static_cast<int>(c.i[0]);
  const Tensor &x = c.in[0], &y = c.out[0];
  if (axis == 3)
    return split(pool, x.rows(), 0.1 * static_cast<double>(x.n[3]) + 3, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        y.f32()[y.row_offset(r)] =
            reduce(x.f32() + x.row_offset(r), x.n[3], [](Lanes v, Lanes acc) { return acc + v; });
    });
  const int64_t m = x.n[axis];
  columns(c, pool, axis, 0.2, [m](const float* p, int64_t sp, float* q, int64_t, int64_t left) {
    Lanes total = splat(0.0f);
    for (int64_t k = 0; k < m; ++k) total = total + load_row(p + k * sp, 0, 1, left);
    store_row(q, total, left);
  });
}

// x [T, m, j]. i: iterations; f: eps.
void sinkhorn(const Call& c, Pool& pool) {
  const Tensor &x = c.in[0], &y = c.out[0];
  const int64_t m = x.n[2], n = x.n[3];
  const float eps = c.f[0];
  split(pool, x.n[0] * x.n[1], 40.0 * static_cast<double>(m * n * c.i[0]), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* p = x.f32() + x.row_offset(t * m);
      float* q = y.f32() + y.row_offset(t * m);
      const auto at = [&](int64_t a, int64_t b) -> float& { return q[a * y.s[2] + b]; };
      const auto by_column = [&] {
        for (int64_t b = 0; b < n; ++b) {
          float total = 0;
          for (int64_t a = 0; a < m; ++a) total += at(a, b);
          for (int64_t a = 0; a < m; ++a) at(a, b) /= total + eps;
        }
      };
      for (int64_t a = 0; a < m; ++a) {
        const float* row = p + a * x.s[2];
        float most = row[0], total = 0;
        for (int64_t b = 1; b < n; ++b) most = row[b] > most ? row[b] : most;
        for (int64_t b = 0; b < n; ++b) total += at(a, b) = std::exp(row[b] - most);
        for (int64_t b = 0; b < n; ++b) at(a, b) = at(a, b) / total + eps;
      }
      by_column();
      for (int64_t k = 1; k < c.i[0]; ++k) {
        for (int64_t a = 0; a < m; ++a) {
          float total = 0;
          for (int64_t b = 0; b < n; ++b) total += at(a, b);
          for (int64_t b = 0; b < n; ++b) at(a, b) /= total + eps;
        }
        by_column();
      }
    }
  });
}

// Blocks of n (a power of two) of each row times the normalised Walsh–Hadamard matrix. i: n.
void hadamard(const Call& c, Pool& pool) {
  const Tensor &x = c.in[0], &y = c.out[0];
  const int64_t n = c.i[0], width = x.n[3];
  const float scale = 1.0f / std::sqrt(static_cast<float>(n));
  split(pool, x.rows(), 3.0 * static_cast<double>(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* p = x.f32() + x.row_offset(r);
      float* q = y.f32() + y.row_offset(r);
      for (int64_t j = 0; j < width; ++j) q[j] = p[j] * scale;
      for (int64_t block = 0; block < width; block += n)
        for (int64_t half = 1; half < n; half *= 2)
          for (int64_t k = block; k < block + n; k += 2 * half)
            for (int64_t j = k; j < k + half; ++j) {
              const float a = q[j], b = q[j + half];
              q[j] = a + b;
              q[j + half] = a - b;
            }
    }
  });
}

}  // namespace mill::TM_ISA
