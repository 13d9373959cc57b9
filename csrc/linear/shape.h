// The arithmetic of 32 inputs (linear.h) as GEMV and GEMM share it, and what they need to know of a format for it.
//
// An accumulator starts at the bits of the float 1.5 x 2^23: taken as a float it then is 1.5 x 2^23 + isum, and
//   fma(that, s, -1.5 x 2^23 s) = isum s, rounded once,
// as long as |isum| < 2^22 and 1.5 x 2^23 s is exact (s has few bits): one instruction instead of a conversion and a
// product.
#pragma once
#include "linear/call.h"
#include "linear/format.h"

namespace mill::TM_ISA::linear {

// As above; conversion and product; all scales are 1; sums are halves, rounded down: the token knows whether of an odd number.
enum class Scaling { kMagic, kPlain, kNone, kHalf };

inline constexpr float kMagic = 12582912.0f;
inline constexpr int32_t kMagicBits = 0x4B400000;
static_assert(32 * 255 * 127 < 1 << 22);  // of any codes: an isum has 32 products of a byte and of what is quantised to 127

// Scales for each 16 inputs or for 32, or for 16 and the two products are added before d_a comes (exact, so it may as
// well be one); mins for each 16 (2), 32 (1) or none (0). Formats that share a shape share the GEMM.
enum class Groups { kWhole, kHalves, kJoined };

template <Groups groups, int min_parts, bool wide, bool whole, Scaling scaling> struct GroupShape {
  static constexpr bool kHalves = groups != Groups::kWhole, kJoined = groups == Groups::kJoined;
  static constexpr bool kMins = min_parts != 0, kWide = wide, kWhole = whole;
  static constexpr int kParts = kHalves ? 2 : 1, kMinParts = min_parts, kHighTimes = 1;
  static constexpr int kSums = scaling == Scaling::kHalf ? 1 : min_parts;  // numbers of a token and 32 inputs
  static constexpr Scaling kScaling = scaling;
  static constexpr int32_t kStart = scaling == Scaling::kMagic ? kMagicBits : 0;
  using Tile = GroupShape;
};

template <class F> constexpr Scaling scaling_of() {
  if constexpr (requires { F::kOnes; }) return Scaling::kNone;
  if constexpr (requires { F::kHuge; }) return Scaling::kPlain;
  return Scaling::kMagic;
}
template <class F> constexpr Groups groups_of() {
  if constexpr (requires { F::kFold; } || requires { F::kOddFold; }) return Groups::kJoined;
  return F::kGroup == 16 ? Groups::kHalves : Groups::kWhole;
}

// Line by line. Where wide codes are dotted as signed bytes, no offset is left to subtract.
template <class F>
struct LineShape : GroupShape<groups_of<F>(), F::kMins ? 32 / F::kGroup : 0, F::kWide, F::kWhole, scaling_of<F>()> {
  static constexpr int kOffset = (F::kWide && kSignedDot) ? 0 : F::kOffset;
};

// Straight from the packed bits. Groups joined by kFold: the second sum comes times 16 and both are small enough
// for one product of int16 pairs, so that nothing is left to scale.
template <class F, bool sixteenths = requires { F::kFold; }> struct Shape : LineShape<F> {};
template <class F> struct Shape<F, true> : LineShape<F> {
  static constexpr int kHighTimes = 16;
  static constexpr Scaling kScaling = Scaling::kNone;
  static constexpr int32_t kStart = 0;
};

// From decoded lines: where whole scale x code, or half of it, is a byte, that is what is decoded, unless it makes a narrow
// dot wide.
enum class Folded { kNot, kWhole, kHalf };
template <class F> constexpr Folded folded() {
  if constexpr (requires { F::kFold; }) return F::kFold == 0 || !kSignedDot ? Folded::kWhole : Folded::kNot;
  if constexpr (requires { F::kOddFold; }) return kSignedDot || kMatrixUnit ? Folded::kNot : Folded::kHalf;
  return Folded::kNot;
}
template <class F, Folded = folded<F>()> struct DecodedShape : LineShape<F> {
  static constexpr bool kNegated = false;
};
template <class F>
struct DecodedShape<F, Folded::kWhole>
    : GroupShape<Groups::kWhole, F::kMins ? 32 / F::kGroup : 0, F::kFold != 0, true, Scaling::kNone> {
  static constexpr int kOffset = F::kFold;
  static constexpr bool kNegated = F::kFold != 0;
};
template <class F>
struct DecodedShape<F, Folded::kHalf> : GroupShape<Groups::kWhole, 0, true, true, Scaling::kHalf> {
  static constexpr int kOffset = F::kOddFold;
  static constexpr bool kNegated = false;
};

// What the last lines may come times (format.h): bytes above 127 must be as good as others.
template <class F> constexpr int high_times() {
  if constexpr (requires { F::kHighTimes; }) return kSignedDot ? 1 : F::kHighTimes;
  return 1;
}
template <class F> constexpr int high_from() {
  if constexpr (high_times<F>() > 1) return F::kHighFrom;
  return 4;
}

// What Scaling::kMagic adds to a product with scale s.
TM_INLINE Floats less_of(Floats s) { return mul(s, broadcast(-kMagic)); }

template <class S> TM_INLINE Floats product(Ints acc, Floats s, Floats less) {
  static_assert(S::kScaling != Scaling::kHalf);
  if constexpr (S::kScaling == Scaling::kMagic) return fma(from_bits(acc), s, less);
  if constexpr (S::kScaling == Scaling::kPlain) return mul(to_floats(acc), s);
  return to_floats(acc);
}

// What a token needs besides codes and scales, for n times 32 inputs: where accumulators start, and in `sum` with mins
// float(sum of codes) * scale, with halves 1 where the sum of codes is odd.
template <class S>
TM_INLINE void prepare(const Tokens& x, int64_t n, int32_t* start, float* sum) {
  constexpr bool half = S::kScaling == Scaling::kHalf;
  const auto start_of = [](Ints sums) TM_LAMBDA {
    const Ints from = sub(broadcast(S::kStart), mul(sums, alternate(S::kOffset, S::kOffset * S::kHighTimes)));
    return as_bytes(half ? shift_down<1>(from) : from);
  };
  int64_t g = 0;
  for (; g + 16 <= n; g += 16) {
    const int16_t* sums = x.sums + 2 * g;
    if constexpr (S::kParts == 1) {
      store(start + g, start_of(pair_sums(sums)));
    } else {
      store(start + 2 * g, start_of(load_s16_ints(sums)));
      store(start + 2 * g + 16, start_of(load_s16_ints(sums + 16)));
    }
    if constexpr (half) store(sum + g, to_floats(bit_and(pair_sums(sums), broadcast(1))));
    if constexpr (S::kMinParts == 1) store(sum + g, mul(to_floats(pair_sums(sums)), load_floats(x.scales + g)));
    if constexpr (S::kMinParts == 2) {
      store(sum + 2 * g, mul(to_floats(load_s16_ints(sums)), load_twice(x.scales + g)));
      store(sum + 2 * g + 16, mul(to_floats(load_s16_ints(sums + 16)), load_twice(x.scales + g + 8)));
    }
  }
  const int left = static_cast<int>(n - g);
  const Tokens rest{x.codes + 32 * g, x.scales + g, x.sums + 2 * g};
  start += S::kParts * g;
  sum += S::kSums * g;
  for (int i = 0; i < left; ++i) {
    const int low = rest.sums[2 * i], high = rest.sums[2 * i + 1];
    if constexpr (S::kParts == 1) {
      start[i] = (S::kStart - S::kOffset * (low + high)) >> half;
    } else {
      start[2 * i] = S::kStart - S::kOffset * low;
      start[2 * i + 1] = S::kStart - S::kOffset * S::kHighTimes * high;
    }
    if constexpr (half) sum[i] = static_cast<float>((low + high) & 1);
    if constexpr (S::kMinParts == 1) sum[i] = static_cast<float>(low + high) * rest.scales[i];
    if constexpr (S::kMinParts == 2) {
      sum[2 * i] = static_cast<float>(low) * rest.scales[i];
      sum[2 * i + 1] = static_cast<float>(high) * rest.scales[i];
    }
  }
}

}  // namespace mill::TM_ISA::linear
