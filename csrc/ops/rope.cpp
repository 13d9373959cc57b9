// angles and rope: one rotation; all scaling was resolved when the model was traced.
#include <cmath>

#include "ops/kernels.h"
#include "ops/loops.h"

namespace mill::TM_ISA {
namespace {

constexpr int kPairs = 512;  // most pairs that rotate in a head: checked when the program is compiled

}  // namespace

// in: positions [c, T], freq [n/2] float, comp [n/2] int, rows [C]? (tokens that complete an entry of i: ratio tokens,
// whose first position counts); out: cs [T or C, n/2, 2]. f: mag.
void angles(const Call& c, Pool& pool) {
  const Tensor &positions = c.in[0], &freq = c.in[1], &comp = c.in[2], &rows = c.in[3], &y = c.out[0];
  const int64_t pairs = freq.n[3];
  split(pool, y.n[1], 25.0 * static_cast<double>(pairs), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t token = rows ? rows.i32()[t] : t;
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t at = positions.i32()[comp.i32()[i] * positions.s[2] + token] - (c.i[0] - 1);
        const float position = static_cast<float>(at);
        const float angle = position * freq.f32()[i];
        float* cs = y.f32() + t * y.s[1] + 2 * i;
        cs[0] = c.f[0] * std::cos(angle);
        cs[1] = c.f[0] * std::sin(angle);
      }
    }
  });
}

// in: x [T, H, K], cs [T, n/2, 2]; out [T, H, K]. i: 1 if pairs are halves, 1 if at the end, 1 if inverse.
void rope(const Call& c, Pool& pool) {
  const Tensor &x = c.in[0], &cs = c.in[1], &y = c.out[0];
  const int64_t heads = x.n[2], width = x.n[3], pairs = cs.n[2], n = 2 * pairs;
  const int64_t start = c.i[1] ? width - n : 0;
  const int64_t next = c.i[0] ? pairs : 1, step = c.i[0] ? 1 : 2;
  split(pool, x.n[1], 0.6 * static_cast<double>(heads * width), [&](int64_t begin, int64_t end, int) {
    float cosine[kPairs], sine[kPairs];
    for (int64_t t = begin; t < end; ++t) {
      const float* angle = cs.f32() + t * cs.s[1];
      for (int64_t i = 0; i < pairs; ++i) {
        cosine[i] = angle[2 * i];
        sine[i] = c.i[2] ? -angle[2 * i + 1] : angle[2 * i + 1];
      }
      for (int64_t h = 0; h < heads; ++h) {
        const float* p = x.f32() + t * x.s[1] + h * x.s[2];
        float* q = y.f32() + t * y.s[1] + h * y.s[2];
        for (int64_t j = 0; j < start; ++j) q[j] = p[j];
        for (int64_t j = start + n; j < width; ++j) q[j] = p[j];
        p += start;
        q += start;
        if (step == 1) {
          for (int64_t i = 0; i < pairs; ++i) {
            const float a = p[i], b = p[i + next];
            q[i] = a * cosine[i] - b * sine[i];
            q[i + next] = a * sine[i] + b * cosine[i];
          }
        } else {
          for (int64_t i = 0; i < pairs; ++i) {
            const float a = p[2 * i], b = p[2 * i + 1];
            q[2 * i] = a * cosine[i] - b * sine[i];
            q[2 * i + 1] = a * sine[i] + b * cosine[i];
          }
        }
      }
    }
  });
}

}  // namespace mill::TM_ISA
