// Sixteen lanes, whatever the instruction set: Floats and Ints are 16 x 32 bits, Bytes is one line of 64 bytes
// (16 rows x 4 inputs). Kernels are written once on these three types; each header below implements the same
// functions. Nothing here rounds differently between sets: that is what makes results equal bit for bit.
#pragma once
#include <cstdint>
#include <cstring>

#ifndef TM_ISA
#error "compile this per instruction set, with TM_ISA"
#endif
#define TM_INLINE inline __attribute__((always_inline))
#define TM_LAMBDA __attribute__((always_inline))

namespace mill::TM_ISA {
#ifdef TM_TILES
inline constexpr bool kMatrixUnit = true;  // the set multiplies whole tiles (linear/tiles.h)
#else
inline constexpr bool kMatrixUnit = false;
#endif
}  // namespace mill::TM_ISA

#if defined(__AVX512F__)
#include "simd/avx512.h"
#elif defined(__AVX2__)
#include "simd/avx2.h"
#elif defined(__ARM_NEON)
#include "simd/neon.h"
#endif

namespace mill::TM_ISA {

TM_INLINE int32_t load_i32(const void* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

}  // namespace mill::TM_ISA
