// What only the types with codebooks need: signs, single bits of indexes, and (AVX-512 with VBMI) tables in registers.
#pragma once
#include "simd/simd.h"

namespace mill::TM_ISA {

// nibbles: of 8 bytes, one a lane. negate<byte, nibble>: bytes 4 l + b of `a` whose sign bit is set, bit b of the given
// nibble of the given byte of lane l of `signs`.
#if defined(__AVX512F__)

TM_INLINE Ints nibbles(const void* p) {
  const __m256i low = _mm256_set1_epi32(load_i32(p)), high = _mm256_set1_epi32(load_i32(static_cast<const char*>(p) + 4));
  const __m512i by = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  return {_mm512_and_si512(_mm512_srlv_epi32(both, by), _mm512_set1_epi32(15))};
}
template <int byte, int nibble> TM_INLINE Bytes negate(Bytes a, Bytes signs) {
  const __m512i each = _mm512_add_epi8(_mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0), _mm512_set1_epi8(byte));
  const __m512i bit = _mm512_set1_epi32(nibble == 0 ? 0x08040201 : static_cast<int32_t>(0x80402010));
  const __mmask64 negative = _mm512_test_epi8_mask(_mm512_shuffle_epi8(signs.v, each), bit);
  return {_mm512_mask_sub_epi8(a.v, negative, _mm512_setzero_si512(), a.v)};
}

inline constexpr bool kShuffles = true;

// A byte out of `entries` for each byte of `index`; bit 8 + h of it is in high[h].
template <int entries> TM_INLINE Bytes look_up_in(const uint8_t* table, Bytes index, __mmask64 bit6, __mmask64 bit7,
                                                  const __mmask64* high) {
  if constexpr (entries == 128) {
    const __m512i low = _mm512_permutexvar_epi8(index.v, _mm512_load_si512(table));
    return {_mm512_mask_permutexvar_epi8(low, bit6, index.v, _mm512_load_si512(table + 64))};
  } else {
    constexpr int half = entries / 2, h = entries == 512 ? 0 : 1;
    const __mmask64 upper = entries == 256 ? bit7 : high[h];
    const Bytes low = look_up_in<half>(table, index, bit6, bit7, high);
    return {_mm512_mask_blend_epi8(upper, low.v, look_up_in<half>(table + half, index, bit6, bit7, high).v)};
  }
}
// By the low six bits.
TM_INLINE Bytes look_up_64(const uint8_t* table, __m512i index) {
  return {_mm512_permutexvar_epi8(index, _mm512_load_si512(table))};
}
TM_INLINE __m512i put_in(__m512i a, int mask, __m512i bits) {  // bits of the mask, into each byte of a
  return _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(mask)), bits, a, 0xCA);
}
// The values of 64 indexes of a codebook (linear/shuffles.h): use(p, 64 +- value p of each), for p < width. Value p of a
// code is negative where bit width nibble + p of its byte of `signs` is set: that bit takes the place of others in the
// code's packed levels, and level and sign are looked up at once.
template <int width, int entries, int nibble, class Use>
TM_INLINE void shuffled_values(const uint8_t* tables, Bytes index, const uint8_t* high_bits, Bytes signs, Use use) {
  const __mmask64 bit7 = _mm512_movepi8_mask(index.v), bit6 = _mm512_movepi8_mask(_mm512_add_epi8(index.v, index.v));
  __mmask64 high[2] = {};
  if constexpr (entries > 256) std::memcpy(high, high_bits, entries == 512 ? 8 : 16);
  const uint8_t* fields = tables + 2 * entries;
  const __m512i left = _mm512_slli_epi16(signs.v, 4), right = _mm512_srli_epi16(signs.v, 4);
  const __m512i first = look_up_in<entries>(tables, index, bit6, bit7, high).v;
  const __m512i last = look_up_in<entries>(tables + entries, index, bit6, bit7, high).v;
  if constexpr (width == 8) {
    const auto four = [&](int p, __m512i packed, __m512i late, __m512i early) TM_LAMBDA {
      const __m512i even = put_in(packed, 0x0C, late), odd = _mm512_srli_epi16(put_in(packed, 0x30, early), 2);
      use(p, look_up_64(fields, odd));
      use(p + 1, look_up_64(fields + 64, odd));
      use(p + 2, look_up_64(fields, even));
      use(p + 3, look_up_64(fields + 64, even));
    };
    four(0, first, signs.v, left);
    four(4, last, right, signs.v);
  } else {
    const __m512i bits = nibble == 0 ? signs.v : right;
    use(0, look_up_64(fields, put_in(first, 0x10, nibble == 0 ? left : signs.v)));
    use(1, look_up_64(fields + 64, put_in(first, 0x02, bits)));
    use(2, look_up_64(fields + 128, put_in(last, 0x04, bits)));
    use(3, look_up_64(fields + 192, put_in(last, 0x08, bits)));
  }
}
// Words of a table by 16 indexes: 8 low bits in `low`, three above them from bit `at` on of `high`.
template <int at> TM_INLINE Bytes words_at(const uint8_t* table, const uint8_t* low, Ints high) {
  const __m512i top = at <= 8 ? _mm512_slli_epi32(high.v, 8 - at) : _mm512_srli_epi32(high.v, at - 8);
  const __m512i index = _mm512_ternarylogic_epi32(top, _mm512_set1_epi32(0x700), load_u8_ints(low).v, 0xEA);
  return {_mm512_i32gather_epi32(index, table, 4)};
}
// 32 codes in the order of shuffled lines: byte b of word p is input 8 b + p (width 8), of word 4 v + p input
// 16 v + 4 b + p (width 4). With `halves` twice, the second half's inputs zero and then the first's.
template <int width, bool halves> TM_INLINE void shuffle_codes(const int8_t* from, int8_t* to) {
  alignas(32) static constexpr auto order = [] {
    struct { uint8_t at[32]; } o{};
    for (int i = 0; i < 32; ++i)
      o.at[i] = static_cast<uint8_t>(width == 8 ? 8 * (i % 4) + i / 4 : 16 * (i / 16) + 4 * (i % 4) + i % 16 / 4);
    return o;
  }();
  const __m256i x = _mm256_permutexvar_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(order.at)),
                                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  auto* at = reinterpret_cast<__m256i*>(to);
  if constexpr (halves) {
    _mm256_storeu_si256(at, _mm256_maskz_mov_epi8(0x33333333, x));
    _mm256_storeu_si256(at + 1, _mm256_maskz_mov_epi8(0xCCCCCCCC, x));
  } else {
    _mm256_storeu_si256(at, x);
  }
}

#else

inline constexpr bool kShuffles = false;

#if defined(__AVX2__)

TM_INLINE Ints nibbles(const void* p) {
  const __m256i by = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), low = _mm256_set1_epi32(15);
  Ints r;
  for (int i = 0; i < 2; ++i)
    r.v[i] = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(load_i32(static_cast<const char*>(p) + 4 * i)), by), low);
  return r;
}
template <int byte, int nibble> TM_INLINE Bytes negate(Bytes a, Bytes signs) {
  const __m256i lanes = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
  const __m256i each = _mm256_add_epi8(lanes, _mm256_set1_epi8(byte));
  const __m256i bit = _mm256_set1_epi32(nibble == 0 ? 0x08040201 : static_cast<int32_t>(0x80402010));
  Bytes r;
  for (int i = 0; i < 2; ++i) {
    const __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(signs.v[i], each), bit), bit);
    r.v[i] = _mm256_sub_epi8(_mm256_xor_si256(a.v[i], mask), mask);
  }
  return r;
}

#elif defined(__ARM_NEON)

TM_INLINE Ints nibbles(const void* p) {
  Ints r;
  for (int i = 0; i < 4; ++i) {
    const int32x4_t by = {-(i % 2 * 16), -(i % 2 * 16 + 4), -(i % 2 * 16 + 8), -(i % 2 * 16 + 12)};
    const auto word = static_cast<uint32_t>(load_i32(static_cast<const char*>(p) + i / 2 * 4));
    r.v[i] = vreinterpretq_s32_u32(vandq_u32(vshlq_u32(vdupq_n_u32(word), by), vdupq_n_u32(15)));
  }
  return r;
}
template <int byte, int nibble> TM_INLINE Bytes negate(Bytes a, Bytes signs) {
  const uint32x4_t lanes = {0, 0x04040404, 0x08080808, 0x0C0C0C0C};
  const uint8x16_t each = vaddq_u8(vreinterpretq_u8_u32(lanes), vdupq_n_u8(byte));
  const uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(nibble == 0 ? 0x08040201u : 0x80402010u));
  Bytes r;
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t mask = vtstq_u8(vqtbl1q_u8(signs.v[i], each), bit);
    r.v[i] = vsubq_u8(veorq_u8(a.v[i], mask), mask);
  }
  return r;
}

#endif
#endif

}  // namespace mill::TM_ISA
