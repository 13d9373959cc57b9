// tail, ssm_scan, delta_rule: ops with memory in a slot (OPS §2, rules 3 and 4).
//
// A slot has a recurrence's state at `base`, and in a ring the op's inputs since. A step repeats base…past without output,
// then its own tokens, token by token, and leaves the state behind the last sure one; heads are split over threads.
#include <cmath>
#include <cstring>

#include "ops/kernels.h"
#include "ops/loops.h"
#include "ops/vmath.h"

namespace mill::TM_ISA {
namespace {

TM_INLINE void copy_floats(float* to, const float* from, int64_t n) { std::memcpy(to, from, static_cast<size_t>(n) * 4); }

float* slot_of(const SlotCache& cache, const StepView& step, int64_t s) {
  return cache.data + step.slot[s] * cache.slot_floats;
}

// Inputs of a recurrence, each [T, …] with contiguous rows, as they lie one after another in a ring row.
struct Line {
  const Call& c;
  const SlotCache& cache;
  const StepView& step;
  int inputs;

  // Row of input k at place `index` of sequence s: from the ring before past, else from this step.
  TM_INLINE const float* row(int k, int64_t s, int64_t index) const {
    if (index >= step.past[s]) return c.in[k].f32() + (step.seq_start[s] + index - step.past[s]) * c.in[k].s[2];
    int64_t at = 0;
    for (int i = 0; i < k; ++i) at += c.in[i].n[3];
    return slot_of(cache, step, s) + cache.state + index % cache.rows * cache.width + at;
  }

  // The step's inputs → the ring, after everybody has read it.
  void keep() const {
    for (int64_t s = 0; s < step.S; ++s) {
      const int64_t end = step.past[s] + step.seq_start[s + 1] - step.seq_start[s];
      const int64_t first = end - cache.rows > step.past[s] ? end - cache.rows : step.past[s];
      for (int64_t i = first; i < end; ++i) {
        float* to = slot_of(cache, step, s) + cache.state + i % cache.rows * cache.width;
        for (int k = 0; k < inputs; ++k) {
          copy_floats(to, row(k, s, i), c.in[k].n[3]);
          to += c.in[k].n[3];
        }
      }
    }
  }
};

// Runs advance(state, s, index, out row or −1) over the tokens of head h of sequence s; `floats` of state a head.
template <class F>
void recur(const Line& line, int64_t s, int64_t h, int64_t floats, float* spare, const F& advance) {
  const StepView& step = line.step;
  float* state = slot_of(line.cache, step, s) + h * floats;
  const int64_t base = step.base[s], past = step.past[s], sure = past + step.sure[s];
  const int64_t end = past + step.seq_start[s + 1] - step.seq_start[s];
  if (base == 0) std::memset(state, 0, static_cast<size_t>(floats) * 4);
  for (int64_t i = base; i < end; ++i) {
    if (i == sure) {  // drafts go on from a copy
      copy_floats(spare, state, floats);
      state = spare;
    }
    advance(state, i, i >= past ? step.seq_start[s] + i - past : -1);
  }
}

}  // namespace

// in: x [T, W], rows [C]?; out: [N, back+1, W]. object: ring. i: back; f: pad.
void tail(const Call& c, Pool& pool) {
  const auto& ring = c.object<SlotCache>(0);
  const Tensor &x = c.in[0], &rows = c.in[1], &y = c.out[0];
  const StepView& step = *c.step;
  const int64_t back = c.i[0], width = x.n[3];
  split(pool, y.n[1], 0.15 * static_cast<double>(width * (back + 1)), [&](int64_t begin, int64_t end, int) {
    int64_t s = 0;
    for (int64_t e = begin; e < end; ++e) {
      const int64_t token = rows ? rows.i32()[e] : e;
      while (token >= step.seq_start[s + 1]) ++s;
      const int64_t index = step.past[s] + token - step.seq_start[s];
      for (int64_t b = 0; b <= back; ++b) {
        float* to = y.f32() + e * y.s[1] + b * y.s[2];
        const int64_t at = index - back + b;
        if (at < 0) {
          for (int64_t j = 0; j < width; ++j) to[j] = c.f[0];
        } else if (at >= step.past[s]) {
          copy_floats(to, x.f32() + (step.seq_start[s] + at - step.past[s]) * x.s[2], width);
        } else {
          copy_floats(to, slot_of(ring, step, s) + at % ring.rows * ring.width, width);
        }
      }
    }
  });
  Line{c, ring, step, 1}.keep();
}

// in: x [T, H·Q], dt [T, H], B [T, G·N], C [T, G·N], A [H, 1 or N]; out [T, H·Q]. object: state. i: H, Q, G, N.
void ssm_scan(const Call& c, Pool& pool) {
  const auto& cache = c.object<SlotCache>(0);
  const StepView& step = *c.step;
  const Line line{c, cache, step, 4};
  const Tensor &A = c.in[4], &y = c.out[0];
  const int64_t H = c.i[0], Q = c.i[1], G = c.i[2], N = c.i[3];
  const double ns = 0.4 * static_cast<double>(Q * N) * static_cast<double>(step.T) / static_cast<double>(step.S) + 20;
  split(pool, step.S * H, ns, [&](int64_t begin, int64_t end, int thread) {
    float* spare = reinterpret_cast<float*>(pool.scratch(thread));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t s = item / H, h = item % H, g = h / (H / G);
      const float* a = A.f32() + h * A.s[2];
      recur(line, s, h, Q * N, spare, [&](float* state, int64_t i, int64_t out) {
        const float* x = line.row(0, s, i) + h * Q;
        const float dt = line.row(1, s, i)[h];
        const float *B = line.row(2, s, i) + g * N, *C = line.row(3, s, i) + g * N;
        for (int64_t q = 0; q < Q; ++q) {
          Lanes total = splat(0.0f);
          for (int64_t n = 0; n < N; n += kLanes) {
            const int64_t left = N - n;
            const Lanes decay = exp(splat(dt) * load_row(a, A.n[3] == 1 ? 0 : n, A.s[3], left));
            const Lanes v = decay * load_row(state + q * N, n, 1, left) + splat(dt * x[q]) * load_row(B, n, 1, left);
            store_row(state + q * N + n, v, left);
            total = fma(v, load_row(C, n, 1, left), total);  // lanes beyond N hold 0·0
          }
          if (out >= 0) y.f32()[out * y.s[2] + h * Q + q] = sum_lanes(total);
        }
      });
    }
  });
  line.keep();
}

// in: q [T, G·K], k [T, G·K], v [T, H·Kv], β [T, H], g [T, H or H·K]; out [T, H·Kv]. object: state [H, K, Kv].
// i: H, G, K, Kv, 1 if value heads go round the key heads (tile). 
void delta_rule(const Call& c, Pool& pool) {
  const auto& cache = c.object<SlotCache>(0);
  const StepView& step = *c.step;
  const Line line{c, cache, step, 5};
  const Tensor& y = c.out[0];
  const int64_t H = c.i[0], G = c.i[1], K = c.i[2], V = c.i[3];
  const bool by_channel = c.in[4].n[3] != H || K == 1;
  const double ns = 0.3 * static_cast<double>(K * V) * static_cast<double>(step.T) / static_cast<double>(step.S) + 20;
  split(pool, step.S * H, ns, [&](int64_t begin, int64_t end, int thread) {
    float* spare = reinterpret_cast<float*>(pool.scratch(thread));
    float* decay = spare + (K * V + kLanes - 1) / kLanes * kLanes;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t s = item / H, h = item % H, key_head = c.i[4] ? h % G : h / (H / G);
      recur(line, s, h, K * V, spare, [&](float* state, int64_t i, int64_t out) {
        const float *q = line.row(0, s, i) + key_head * K, *k = line.row(1, s, i) + key_head * K;
        const float *v = line.row(2, s, i) + h * V, *g = line.row(4, s, i) + (by_channel ? h * K : h);
        const float beta = line.row(3, s, i)[h];
        for (int64_t j = 0; j < K; j += kLanes)
          store_row(decay + j, exp(by_channel ? load_row(g, j, 1, K - j) : splat(*g)), K - j);
        for (int64_t j = 0; j < V; j += kLanes) {
          const int64_t left = V - j;
          Lanes seen = splat(0.0f), o = splat(0.0f);
          for (int64_t r = 0; r < K; ++r) {
            const Lanes row = splat(decay[r]) * load_row(state + r * V, j, 1, left);
            store_row(state + r * V + j, row, left);
            seen = fma(splat(k[r]), row, seen);
          }
          const Lanes d = splat(beta) * (load_row(v, j, 1, left) - seen);
          for (int64_t r = 0; r < K; ++r) {
            const Lanes row = fma(splat(k[r]), d, load_row(state + r * V, j, 1, left));
            store_row(state + r * V + j, row, left);
            o = fma(splat(q[r]), row, o);
          }
          if (out >= 0) store_row(y.f32() + out * y.s[2] + h * V + j, o, left);
        }
      });
    }
  });
  line.keep();
}

}  // namespace mill::TM_ISA
