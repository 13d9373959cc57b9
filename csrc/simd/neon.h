// simd.h for aarch64 with dotprod: four registers each. Codes are dotted as signed bytes, which they are up to 127.
#pragma once
#include <arm_neon.h>

namespace mill::TM_ISA {

struct Floats { float32x4_t v[4]; };
struct Ints { int32x4_t v[4]; };
struct Bytes { uint8x16_t v[4]; };

inline constexpr bool kSignedDot = true;  // wide codes are made signed: their offset must not be added again
inline constexpr int kTilePanels = 1, kTileTokens = 4;

#define TM_EACH(type, expression) \
  type r; \
  for (int i = 0; i < 4; ++i) r.v[i] = expression; \
  return r

TM_INLINE Floats zero_floats() { TM_EACH(Floats, vdupq_n_f32(0)); }
TM_INLINE Floats load_floats(const float* p) { TM_EACH(Floats, vld1q_f32(p + 4 * i)); }
TM_INLINE Floats broadcast(float x) { TM_EACH(Floats, vdupq_n_f32(x)); }
TM_INLINE void store(float* p, Floats a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
TM_INLINE Floats load_first(const float* p, int n) {
  float t[16] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return load_floats(t);
}
TM_INLINE void store_first(float* p, Floats a, int n) {
  float t[16];
  store(t, a);
  for (int i = 0; i < n; ++i) p[i] = t[i];
}
TM_INLINE Floats add(Floats a, Floats b) { TM_EACH(Floats, vaddq_f32(a.v[i], b.v[i])); }
TM_INLINE Floats mul(Floats a, Floats b) { TM_EACH(Floats, vmulq_f32(a.v[i], b.v[i])); }
TM_INLINE Floats sub(Floats a, Floats b) { TM_EACH(Floats, vsubq_f32(a.v[i], b.v[i])); }
TM_INLINE Floats fma(Floats a, Floats b, Floats c) { TM_EACH(Floats, vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
TM_INLINE Floats fnma(Floats a, Floats b, Floats c) { TM_EACH(Floats, vfmsq_f32(c.v[i], a.v[i], b.v[i])); }
TM_INLINE Floats load_f16(const void* p) {
  TM_EACH(Floats, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(static_cast<const uint16_t*>(p) + 4 * i))));
}
TM_INLINE Floats load_bf16(const void* p) {
  TM_EACH(Floats, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(static_cast<const uint16_t*>(p) + 4 * i), 16)));
}

TM_INLINE Ints broadcast(int32_t x) { TM_EACH(Ints, vdupq_n_s32(x)); }
TM_INLINE Ints load_ints(const void* p) { TM_EACH(Ints, vld1q_s32(static_cast<const int32_t*>(p) + 4 * i)); }
TM_INLINE Ints load_u16_ints(const void* p) {
  TM_EACH(Ints, vreinterpretq_s32_u32(vmovl_u16(vld1_u16(static_cast<const uint16_t*>(p) + 4 * i))));
}
TM_INLINE Ints load_u8_ints(const void* p) {
  const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(p));
  const uint16x8_t half[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes))};
  TM_EACH(Ints, vreinterpretq_s32_u32(i % 2 == 0 ? vmovl_u16(vget_low_u16(half[i / 2])) : vmovl_u16(vget_high_u16(half[i / 2]))));
}
TM_INLINE Ints load_s8_ints(const void* p) {
  const int8x16_t bytes = vld1q_s8(static_cast<const int8_t*>(p));
  const int16x8_t half[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))};
  TM_EACH(Ints, i % 2 == 0 ? vmovl_s16(vget_low_s16(half[i / 2])) : vmovl_s16(vget_high_s16(half[i / 2])));
}
TM_INLINE Ints load_s16_ints(const int16_t* p) { TM_EACH(Ints, vmovl_s16(vld1_s16(p + 4 * i))); }
// Two int16 a lane: from 32 bytes; the halves of a lane; two small sums, the second of them times 16, and their
// product with another two, added.
TM_INLINE Ints load_s8_words(const void* p) {
  TM_EACH(Ints, vreinterpretq_s32_s16(vmovl_s8(vld1_s8(static_cast<const int8_t*>(p) + 8 * i))));
}
TM_INLINE Ints load_u8_words(const void* p) {
  TM_EACH(Ints, vreinterpretq_s32_u16(vmovl_u8(vld1_u8(static_cast<const uint8_t*>(p) + 8 * i))));
}
TM_INLINE Ints low_word(Ints a) { TM_EACH(Ints, vshrq_n_s32(vshlq_n_s32(a.v[i], 16), 16)); }
TM_INLINE Ints high_word(Ints a) { TM_EACH(Ints, vshrq_n_s32(a.v[i], 16)); }
TM_INLINE Ints dot_words(Ints a, Ints sixteen_b, Ints words) {
  TM_EACH(Ints, vmlaq_s32(vmulq_s32(a.v[i], vshrq_n_s32(vshlq_n_s32(words.v[i], 16), 16)), vshrq_n_s32(sixteen_b.v[i], 4),
                          vshrq_n_s32(words.v[i], 16)));
}
TM_INLINE Ints alternate(int32_t even, int32_t odd) {
  const int32x4_t both = {even, odd, even, odd};
  TM_EACH(Ints, (static_cast<void>(i), both));
}
TM_INLINE Ints pair_sums(const int16_t* p) { TM_EACH(Ints, vpaddlq_s16(vld1q_s16(p + 8 * i))); }  // of 32
TM_INLINE Floats load_twice(const float* p) {  // each of 8
  const float32x4_t half[2] = {vld1q_f32(p), vld1q_f32(p + 4)};
  TM_EACH(Floats, i % 2 == 0 ? vzip1q_f32(half[i / 2], half[i / 2]) : vzip2q_f32(half[i / 2], half[i / 2]));
}
TM_INLINE Ints mul(Ints a, Ints b) { TM_EACH(Ints, vmulq_s32(a.v[i], b.v[i])); }
TM_INLINE Ints add(Ints a, Ints b) { TM_EACH(Ints, vaddq_s32(a.v[i], b.v[i])); }
TM_INLINE Ints sub(Ints a, Ints b) { TM_EACH(Ints, vsubq_s32(a.v[i], b.v[i])); }
TM_INLINE Ints bit_and(Ints a, Ints b) { TM_EACH(Ints, vandq_s32(a.v[i], b.v[i])); }
TM_INLINE Ints max(Ints a, Ints b) { TM_EACH(Ints, vmaxq_s32(a.v[i], b.v[i])); }
template <int n> TM_INLINE Ints shift_left(Ints a) { TM_EACH(Ints, vshlq_n_s32(a.v[i], n)); }
template <int n> TM_INLINE Ints shift_right(Ints a) {  // logical
  if constexpr (n == 0) return a;
  else { TM_EACH(Ints, vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a.v[i]), n))); }
}
template <int n> TM_INLINE Ints shift_down(Ints a) { TM_EACH(Ints, vshrq_n_s32(a.v[i], n)); }  // keeps the sign
TM_INLINE Ints shift_right(Ints a, int n) {
  TM_EACH(Ints, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v[i]), vdupq_n_s32(-n))));
}
TM_INLINE Floats to_floats(Ints a) { TM_EACH(Floats, vcvtq_f32_s32(a.v[i])); }
// By as many bits as *n says, and the low four bits of each lane as floats.
TM_INLINE Ints shift_right(Ints a, const int32_t* n) {
  TM_EACH(Ints, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v[i]), vdupq_n_s32(-*n))));
}
TM_INLINE Floats low_nibbles(Ints a) { TM_EACH(Floats, vcvtq_f32_s32(vandq_s32(a.v[i], vdupq_n_s32(15)))); }
// 2 n + 1 of n, the low four or three bits of each lane.
TM_INLINE Floats odd_of_four(Ints a) { return add(mul(low_nibbles(a), broadcast(2.0f)), broadcast(1.0f)); }
TM_INLINE Floats odd_of_three(Ints a) { return odd_of_four(bit_and(a, broadcast(7))); }
TM_INLINE Ints bits(Floats a) { TM_EACH(Ints, vreinterpretq_s32_f32(a.v[i])); }
TM_INLINE Floats from_bits(Ints a) { TM_EACH(Floats, vreinterpretq_f32_s32(a.v[i])); }
TM_INLINE Ints round_even(Floats a) { TM_EACH(Ints, vcvtnq_s32_f32(a.v[i])); }
TM_INLINE int32_t largest(Ints a) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}
TM_INLINE float total(Floats a) {  // lanes i + i+8, then + 4, + 2, + 1: one tree in every set
  const float32x4_t s = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  return vget_lane_f32(vpadd_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)), vget_low_f32(s)), 0);
}
TM_INLINE int32_t total(Ints a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
TM_INLINE void store_s8(int8_t* p, Ints a) {
  const int16x8_t low = vcombine_s16(vqmovn_s32(a.v[0]), vqmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vqmovn_s32(a.v[2]), vqmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}
// Half of 16 E4M3 bytes 0 .. 0x7E: shifted by 7 they are f16 of 1/256 of the value, subnormals included.
TM_INLINE Floats load_half_e4m3(const void* p) {
  const Ints wide = load_u8_ints(p);
  TM_EACH(Floats, vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(vshlq_n_s32(wide.v[i], 7))))), 128.0f));
}

TM_INLINE void store_s16(int16_t* p, Ints a) {
  for (int i = 0; i < 4; ++i) vst1_s16(p + 4 * i, vqmovn_s32(a.v[i]));
}

TM_INLINE Bytes load_bytes(const void* p) { TM_EACH(Bytes, vld1q_u8(static_cast<const uint8_t*>(p) + 16 * i)); }
TM_INLINE void store(void* p, Bytes a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(static_cast<uint8_t*>(p) + 16 * i, a.v[i]);
}
TM_INLINE Bytes broadcast_byte(int x) { TM_EACH(Bytes, vdupq_n_u8(static_cast<uint8_t>(x))); }
TM_INLINE Bytes as_bytes(Ints a) { TM_EACH(Bytes, vreinterpretq_u8_s32(a.v[i])); }
// Whether a byte is below n > 0.
TM_INLINE bool any_below(Bytes a, int n) {
  return vminvq_u8(vminq_u8(vminq_u8(a.v[0], a.v[1]), vminq_u8(a.v[2], a.v[3]))) < n;
}
TM_INLINE Bytes add(Bytes a, Bytes b) { TM_EACH(Bytes, vaddq_u8(a.v[i], b.v[i])); }
TM_INLINE Bytes times(Bytes a, Ints n) {  // the four bytes of a lane times its number, modulo 256
  const int32x4_t low = vdupq_n_s32(255), ones = vdupq_n_s32(0x01010101);
  TM_EACH(Bytes, vmulq_u8(a.v[i], vreinterpretq_u8_s32(vmulq_s32(vandq_s32(n.v[i], low), ones))));
}
// Where a byte taken as a fraction of 256 lies: 0, 1 or 2 thirds, rounded down.
TM_INLINE Bytes thirds(Bytes a) {
  TM_EACH(Bytes, vaddq_u8(vshrq_n_u8(vcgtq_u8(a.v[i], vdupq_n_u8(85)), 7), vshrq_n_u8(vcgtq_u8(a.v[i], vdupq_n_u8(170)), 7)));
}
TM_INLINE Bytes bit_and(Bytes a, Bytes b) { TM_EACH(Bytes, vandq_u8(a.v[i], b.v[i])); }
template <int n> TM_INLINE Bytes shift_left(Bytes a) { TM_EACH(Bytes, vshlq_n_u8(a.v[i], n)); }
template <int n> TM_INLINE Bytes shift_right(Bytes a) {
  if constexpr (n == 0) return a;
  else { TM_EACH(Bytes, vshrq_n_u8(a.v[i], n)); }
}
template <int n, int mask> TM_INLINE Bytes shift_right_and(Bytes a) {  // in each byte
  if constexpr (n == 0) return bit_and(a, broadcast_byte(mask));
  else return bit_and(shift_right<n>(a), broadcast_byte(mask));
}
TM_INLINE Bytes and_or(Bytes a, Bytes mask, Bytes b) { TM_EACH(Bytes, vorrq_u8(vandq_u8(a.v[i], mask.v[i]), b.v[i])); }
TM_INLINE Bytes table16(const void* p) { TM_EACH(Bytes, (static_cast<void>(i), vld1q_u8(static_cast<const uint8_t*>(p)))); }
// By the low four bits of each byte, whatever is above them.
TM_INLINE Bytes look_up_nibble(Bytes table, Bytes raw) {
  TM_EACH(Bytes, vqtbl1q_u8(table.v[i], vandq_u8(raw.v[i], vdupq_n_u8(15))));
}

// Four bytes from base + offset, in each of 16 lanes.
TM_INLINE Bytes gather(const int8_t* base, Ints offset) {
  uint8_t t[64];
  for (int i = 0; i < 16; ++i) std::memcpy(t + 4 * i, base + offset.v[i / 4][i % 4], 4);
  return load_bytes(t);
}
TM_INLINE void gather_pair(const int8_t* base, Ints offset, Bytes* first, Bytes* last) {
  *first = gather(base, offset);
  *last = gather(base + 4, offset);
}

// acc + sum over 4 of codes x activations. kWide: the codes lie 128 above their value.
template <bool kWide> TM_INLINE Ints dot(Ints acc, Bytes codes, int32_t x) {
  const int8x16_t a = vreinterpretq_s8_s32(vdupq_n_s32(x));
  const uint8x16_t flip = vdupq_n_u8(kWide ? 0x80 : 0);
  TM_EACH(Ints, vdotq_s32(acc.v[i], vreinterpretq_s8_u8(kWide ? veorq_u8(codes.v[i], flip) : codes.v[i]), a));
}
template <bool kWide> TM_INLINE Ints dot_at(Ints acc, Bytes codes, const int8_t* x) {
  int32_t a;
  std::memcpy(&a, x, 4);
  return dot<kWide>(acc, codes, a);
}

// acc + sum over 2 of 16-bit codes x activations, one int32 for each row.
TM_INLINE Ints dot_words(Ints acc, Ints codes, int32_t x) {
  const int16x8_t a = vreinterpretq_s16_s32(vdupq_n_s32(x));
  Ints r;
  for (int i = 0; i < 4; ++i) {
    const int16x8_t w = vreinterpretq_s16_s32(codes.v[i]);
    const int32x4_t low = vmull_s16(vget_low_s16(w), vget_low_s16(a)), high = vmull_high_s16(w, a);
    r.v[i] = vaddq_s32(acc.v[i], vpaddq_s32(low, high));
  }
  return r;
}

TM_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
TM_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
#undef TM_EACH

}  // namespace mill::TM_ISA
