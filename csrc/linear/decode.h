// From packed bits to what does arithmetic: chunks of a panel for the GEMM, and whole rows as float32.
#pragma once
#include "linear/format.h"
#include "linear/tile.h"

namespace mill::TM_ISA::linear {

template <class F> TM_INLINE Floats scale_of(const typename F::Scales& s, int k) {
  if constexpr (requires { s.float_whole(k); }) return s.float_whole(k);
  else if constexpr (F::kWhole) return to_floats(s.whole(k));
  else return s.scale(k);
}
template <class F> TM_INLINE Floats min_of(const typename F::Scales& s, int k) {
  if constexpr (requires { s.float_min(k); }) return s.float_min(k);
  else if constexpr (F::kWhole) return to_floats(s.whole_min(k));
  else return s.min(k);
}

// The packed block of a panel that begins with group g.
template <class F> TM_INLINE const uint8_t* packed_groups(const uint8_t* panel, int64_t columns, int64_t g) {
  return panel + front_bytes(geometry_of<F>(), columns) + g / (F::kInputs / 32) * F::kBytes;
}

// Line t of a block's group j as GEMM wants it: its scale folded into the code, where the format is folded.
template <class F> TM_INLINE Bytes decoded(Bytes codes, const typename F::Scales& s, int j, int line) {
  if constexpr (!DecodedShape<F>::kFolded) return codes;
  else {
    const Ints whole = s.whole(j * 32 / F::kGroup + (F::kGroup == 16 ? line >> 2 : 0));
    constexpr bool negated = F::kFold != 0;
    return add(times(add(codes, broadcast_byte(-F::kOffset)), negated ? sub(broadcast(0), whole) : whole),
               broadcast_byte(F::kFold));
  }
}

// Groups [g0, g0 + n) of 32 inputs of a panel.
template <class F> void decode_groups(const uint8_t* panel, int64_t columns, int64_t g0, int n, DecodedPanel& to) {
  using S = DecodedShape<F>;
  constexpr int per_block = F::kInputs / 32;
  const int64_t b0 = g0 / per_block;
  const uint8_t* block = packed_groups<F>(panel, columns, g0);
  for (int j0 = 0; j0 < n; j0 += per_block, block += F::kBytes) {
    const typename F::Scales s(panel + (b0 + j0 / per_block) * F::kFront, block);
    const int end = n - j0 < per_block ? n - j0 : per_block;
    if constexpr (S::kScaling != Scaling::kNone)
      for (int k = 0; k < end * S::kParts; ++k) {
        const Floats scale = scale_of<F>(s, k);
        store(to.scale + 16 * (j0 * S::kParts + k), scale);
        store(to.less + 16 * (j0 * S::kParts + k), less_of(scale));
      }
    if constexpr (S::kMins)
      for (int k = 0; k < end * S::kMinParts; ++k) store(to.min + 16 * (j0 * S::kMinParts + k), min_of<F>(s, k));
    if constexpr (S::kWhole) {
      store(to.d + 16 * (j0 / kBlockGroups), S::kFolded && S::kOffset != 0 ? sub(zero_floats(), s.d()) : s.d());
      if constexpr (S::kMins) store(to.dmin + 16 * (j0 / kBlockGroups), s.dmin());
    }
    for (int j = 0; j < end; ++j)
      F::lines(block, j, [&](int line, Bytes codes) TM_LAMBDA {
        store(to.lines + ((j0 + j) * 8 + line) * 64, decoded<F>(codes, s, j, line));
      });
  }
}

template <class F> void decode_row(const uint8_t* panel, int row, int64_t columns, float* out) {
  constexpr int per_block = F::kInputs / 32, scales = F::kInputs / F::kGroup;
  const uint8_t* block = packed_groups<F>(panel, columns, 0);
  for (int64_t g0 = 0; g0 < columns / 32; g0 += per_block, block += F::kBytes, panel += F::kFront) {
    alignas(64) uint8_t lines[F::kInputs * 16];
    alignas(64) float scale[scales * 16], min[scales * 16];
    const typename F::Scales s(panel, block);
    for (int k = 0; k < scales; ++k) {
      Floats d = scale_of<F>(s, k);
      if constexpr (F::kWhole) d = mul(d, s.d());
      store(scale + 16 * k, d);
      if constexpr (F::kMins) {
        Floats m = min_of<F>(s, k);
        if constexpr (F::kWhole) m = mul(m, s.dmin());
        store(min + 16 * k, m);
      }
    }
    const int n = static_cast<int>(columns / 32 - g0 < per_block ? columns / 32 - g0 : per_block);
    for (int j = 0; j < n; ++j)
      F::lines(block, j, [&](int line, Bytes codes) TM_LAMBDA { store(lines + (j * 8 + line) * 64, codes); });
    for (int k = 0; k < 32 * n; ++k) {
      const int code = lines[(k / 4) * 64 + 4 * row + k % 4] - F::kOffset;
      const float value = static_cast<float>(code) * scale[k / F::kGroup * 16 + row];
      out[32 * g0 + k] = F::kMins ? value - min[k / F::kGroup * 16 + row] : value;
    }
  }
}

}  // namespace mill::TM_ISA::linear
