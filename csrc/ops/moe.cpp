// route and mix: which experts a token uses, and the weighted sum of what they return.
#include <cmath>

#include "ops/kernels.h"
#include "ops/loops.h"

namespace mill::TM_ISA {
namespace {

constexpr int64_t kExperts = 2048;  // most experts and groups: checked when the program is compiled

// The k best of n by value, best first, equal values lowest id first; entries of −infinity may be chosen last.
TM_INLINE void best(const float* value, int64_t n, int64_t k, int32_t* ids) {
  int64_t have = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (have == k && !(value[j] > value[ids[have - 1]])) continue;
    int64_t at = have < k ? have++ : have - 1;
    for (; at > 0 && value[j] > value[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(j);
  }
}

// Sets to −infinity what lies outside the `keep` groups whose best two add up to most.
void mask_groups(float* choose, int64_t experts, int64_t groups, int64_t keep) {
  const int64_t each = experts / groups;
  float rank[kExperts];
  int32_t kept[kExperts];
  for (int64_t g = 0; g < groups; ++g) {
    int32_t two[2] = {0, 0};
    best(choose + g * each, each, each < 2 ? 1 : 2, two);
    rank[g] = choose[g * each + two[0]] + (each < 2 ? 0.0f : choose[g * each + two[1]]);
  }
  best(rank, groups, keep, kept);
  for (int64_t g = 0; g < groups; ++g) {
    bool keeps = false;
    for (int64_t i = 0; i < keep; ++i) keeps |= kept[i] == g;
    for (int64_t e = 0; e < each && !keeps; ++e) choose[g * each + e] = -INFINITY;
  }
}

}  // namespace

// in: score [T, E], bias [E]?, ids [T, k]?; out: ids [T, k], w [T, k].
// i: groups, groups kept, norm (0 none, 1 sum, 2 softmax); f: eps, scale.
void route(const Call& c, Pool& pool) {
  const Tensor &score = c.in[0], &bias = c.in[1], &given = c.in[2], &ids = c.out[0], &w = c.out[1];
  const int64_t experts = score.n[3], k = ids.n[3];
  split(pool, score.n[2], 4.0 * static_cast<double>(experts), [&](int64_t begin, int64_t end, int) {
    float choose[kExperts];
    for (int64_t t = begin; t < end; ++t) {
      const float* p = score.f32() + t * score.s[2];
      int32_t* chosen = ids.i32() + t * k;
      float* weight = w.f32() + t * k;
      if (given) {
        for (int64_t i = 0; i < k; ++i) chosen[i] = given.i32()[t * given.s[2] + i];
      } else {
        for (int64_t e = 0; e < experts; ++e) choose[e] = bias ? p[e] + bias.f32()[e] : p[e];
        if (c.i[0] > 1) mask_groups(choose, experts, c.i[0], c.i[1]);
        best(choose, experts, k, chosen);
      }
      float total = 0.0f, most = -INFINITY;
      for (int64_t i = 0; i < k; ++i) {
        weight[i] = chosen[i] < 0 || chosen[i] >= experts ? 0.0f : p[chosen[i]];
        most = weight[i] > most ? weight[i] : most;
      }
      if (c.i[2] == 2)
        for (int64_t i = 0; i < k; ++i) weight[i] = std::exp(weight[i] - most);
      for (int64_t i = 0; i < k; ++i) total += weight[i];
      if (c.i[2] == 1) total = total > c.f[0] ? total : c.f[0];
      for (int64_t i = 0; i < k; ++i) weight[i] = (c.i[2] ? weight[i] / total : weight[i]) * c.f[1];
    }
  });
}

// in: w [T, m, j], x [T, m, D]; out [T, j, D].
void mix(const Call& c, Pool& pool) {
  const Tensor &w = c.in[0], &x = c.in[1], &y = c.out[0];
  const int64_t m = x.n[2], j = y.n[2], width = x.n[3];
  const int64_t blocks = (width + 255) / 256;
  split(pool, x.n[1] * blocks, 0.15 * static_cast<double>(m * j) * 256, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t t = item / blocks, first = item % blocks * 256, last = first + 256 < width ? first + 256 : width;
      for (int64_t b = 0; b < j; ++b)
        for (int64_t d = first; d < last; d += kLanes) {
          Lanes total = splat(0.0f);
          for (int64_t a = 0; a < m; ++a)
            total = fma(splat(w.f32()[t * w.s[1] + a * w.s[2] + b * w.s[3]]),
                        load_row(x.f32() + t * x.s[1] + a * x.s[2], d, 1, last - d), total);
          store_row(y.f32() + t * y.s[1] + b * y.s[2] + d, total, last - d);
        }
    }
  });
}

}  // namespace mill::TM_ISA
