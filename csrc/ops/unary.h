// The kinds of the op `unary`, numbered as `backends/cpu/lower.py` numbers them.
#pragma once

#include <cmath>

#include "ops/vmath.h"

namespace mill::TM_ISA {

enum class UnaryKind : int64_t {
  kAffine, kClamp, kSilu, kGelu, kGeluTanh, kGeluQuick, kRelu, kRelu2, kSigmoid,
  kTanh, kExp, kLog, kSqrt, kSoftplus, kFloor, kMod,
};

// ln(1 + e^x), that is max(x, 0) + ln(1 + e) with e = e^−|x|; the logarithm is 2 artanh t with t = e / (2 + e) ≤ 1/3.
inline Lanes softplus(Lanes x) {
  const Lanes e = exp(splat(0.0f) - abs(x)), t = e / (splat(2.0f) + e), s = t * t;
  Lanes p = splat(0.11619531363248825f);
  p = fma(p, s, splat(0.1085166409611702f));
  p = fma(p, s, splat(0.14296290278434753f));
  p = fma(p, s, splat(0.19999851286411285f));
  p = fma(p, s, splat(0.3333333432674408f));
  return max(x, splat(0.0f)) + fma(p * s, t + t, t + t);
}

// Calls use(f, nanoseconds an element) with the function of `kind`.
template <class Use>
inline void with_unary(UnaryKind kind, Lanes a, Lanes b, const Use& use) {
  const Lanes zero = splat(0.0f);
  switch (kind) {
    case UnaryKind::kAffine: return use([=](Lanes x) { return x * a + b; }, 0.1);
    case UnaryKind::kClamp: return use([=](Lanes x) { return min(max(x, a), b); }, 0.1);
    case UnaryKind::kSilu: return use([](Lanes x) { return silu(x); }, 0.5);
    case UnaryKind::kGelu:
      return use([](Lanes x) { return by_lane(x, [](float v) { return 0.5f * v * (1.0f + std::erf(v * 0.70710678f)); }); }, 8.0);
    case UnaryKind::kGeluTanh: return use([](Lanes x) { return gelu_tanh(x); }, 0.5);
    case UnaryKind::kGeluQuick: return use([](Lanes x) { return gelu_quick(x); }, 0.5);
    case UnaryKind::kRelu: return use([=](Lanes x) { return max(zero, x); }, 0.1);
    case UnaryKind::kRelu2: return use([=](Lanes x) { const Lanes y = max(zero, x); return y * y; }, 0.1);
    case UnaryKind::kSigmoid: return use([](Lanes x) { return sigmoid(x); }, 0.5);
    case UnaryKind::kTanh: return use([](Lanes x) { return tanh(x); }, 0.7);
    case UnaryKind::kExp: return use([](Lanes x) { return exp(x); }, 0.5);
    case UnaryKind::kLog: return use([](Lanes x) { return by_lane(x, [](float v) { return std::log(v); }); }, 4.0);
    case UnaryKind::kSqrt: return use([](Lanes x) { return sqrt(x); }, 0.2);
    case UnaryKind::kSoftplus: return use([](Lanes x) { return softplus(x); }, 0.8);
    case UnaryKind::kFloor: return use([](Lanes x) { return floor(x); }, 0.1);
    case UnaryKind::kMod:
      return use([=](Lanes x) { return x - floor(x / a) * a; }, 0.3);
  }
}

}  // namespace mill::TM_ISA
