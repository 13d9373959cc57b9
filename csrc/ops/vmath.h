// Elementary functions on lanes, in float32 to about 2 ulp, with the same bits on every instruction set.
//
// Polynomials are fits made for this file (relative error below 5e-9 before rounding). Inverse functions that no hot
// path needs (log, erf) go lane by lane through libm.
#pragma once

#include "ops/lanes.h"

namespace mill::TM_ISA {

// e^r·… of the reduced argument: x = n·ln 2 + r.
inline Lanes exp_reduced(Lanes x, Lanes n) {
  Lanes r = fma(n, splat(-0.693359375f), x);  // ln 2 in two parts, the first exact in few bits
  r = fma(n, splat(2.12194440e-4f), r);
  Lanes p = splat(0.0013814539415761828f);
  p = fma(p, r, splat(0.00836874544620514f));
  p = fma(p, r, splat(0.04166838899254799f));
  p = fma(p, r, splat(0.1666652113199234f));
  p = fma(p, r, splat(0.4999999403953552f));
  return fma(p, r * r, r) + splat(1.0f);
}

// 2^x for −126 ≤ x < 127, to 1.5e-7 of itself; or to 3e-6, a tenth of what is lost where 15 bits are kept.
template <bool kFine = true>
inline Lanes exp2_within(Lanes x) {
  const Lanes f = above_floor(x);
  Lanes p;
  if constexpr (kFine) {
    p = fma(splat(0.0018671301659196615f), f, splat(0.009017029777169228f));
    p = fma(p, f, splat(0.05579991266131401f));
    p = fma(p, f, splat(0.24016444385051727f));
    p = fma(p, f, splat(0.6931512951850891f));
  } else {
    p = fma(splat(0.013426685705780983f), f, splat(0.052242472767829895f));
    p = fma(p, f, splat(0.2412802129983902f));
    p = fma(p, f, splat(0.6930448412895203f));
  }
  return times_floor_power(fma(p, f, splat(1.0f)), x);
}

// 2^x for x ≤ 0; 0 below −126. NaN is not kept.
inline Lanes exp2_falling(Lanes x) {
  const Lanes least = splat(-126.0f);
  return select(less(x, least), splat(0.0f), exp2_within(max(x, least)));
}

// e^x; 0 below −104, infinity above 89, NaN for NaN.
inline Lanes exp(Lanes x) {
  x = max(splat(-104.0f), x);  // the constant first: max and min then keep a NaN
  x = min(splat(89.0f), x);
  const Lanes n = round(x * splat(1.44269504f));
  return times_any_power(exp_reduced(x, n), n);
}

inline Lanes sigmoid(Lanes x) { return splat(1.0f) / (splat(1.0f) + exp(splat(0.0f) - x)); }
inline Lanes silu(Lanes x) { return x / (splat(1.0f) + exp(splat(0.0f) - x)); }

inline Lanes tanh(Lanes x) {
  const Lanes t = abs(x), s = x * x;
  Lanes p = splat(-0.005717045161873102f);
  p = fma(p, s, splat(0.02065058797597885f));
  p = fma(p, s, splat(-0.05374349653720856f));
  p = fma(p, s, splat(0.13331490755081177f));
  p = fma(p, s, splat(-0.3333328366279602f));
  const Lanes small = fma(p * s, x, x);
  const Lanes large = splat(1.0f) - splat(2.0f) / (exp(t + t) + splat(1.0f));
  return select(less(t, splat(0.625f)), small, copysign(large, x));
}

// x/2 · (1 + tanh(√(2/π)(x + 0.044715x³))), by 1 + tanh u = 2 / (1 + e^−2u).
inline Lanes gelu_tanh(Lanes x) {
  const Lanes u = x * splat(-1.5957691216f) * fma(x * x, splat(0.044715f), splat(1.0f));
  return x / (splat(1.0f) + exp(u));
}

inline Lanes gelu_quick(Lanes x) { return x / (splat(1.0f) + exp(x * splat(-1.702f))); }

// One lane after another; for functions that no hot path needs.
template <class F>
inline Lanes by_lane(Lanes x, F f) {
  float v[kLanes];
  store(v, x);
  for (float& e : v) e = f(e);
  return load(v);
}

}  // namespace mill::TM_ISA
