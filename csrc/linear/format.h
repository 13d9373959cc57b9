// What a quantised format offers the kernels (formats/*.h), and the table that is made of it (isa/*.cpp).
//
//   struct F {
//     static constexpr int kInputs;   // inputs of a packed block; a row is padded to whole blocks
//     static constexpr int kBytes;    // bytes of a packed block of 16 rows, a multiple of 64
//     static constexpr int kFront;    // bytes of each block that lie in front of the panel (0 or 32: its f16 d)
//     static constexpr int kGroup;    // inputs that share a scale: 32 or 16
//     static constexpr bool kMins;    // weight = code * scale - min
//     static constexpr bool kWhole;   // blocks of 256 whose scales and mins are whole numbers, times d and dmin
//     static constexpr int kOffset;   // code = line byte - kOffset
//     static constexpr bool kWide;    // line bytes above 127 occur (then kOffset = 128)
//     static constexpr int kFileInputs, kFileBytes;  // a block in the file
//     struct Scales {                 // of a packed block; k is a group of the block
//       Scales(const uint8_t* front, const uint8_t* block);
//       Floats scale(int k), min(int k);                              // kWhole is false
//       Ints whole(int k), whole_min(int k); Floats d(), dmin();      // kWhole is true
//                                     // or Floats float_whole, float_min(int k) instead of whole, whole_min
//     };
//     static void lines(const uint8_t* block, int j, Use use);   // calls use(t, Bytes) for the 8 lines of inputs
//                                     // 32 j .. 32 j + 31; byte 4 r + b of line t is row r, input 32 j + 4 t + b
//     static void pack(const uint8_t* const rows[16], int blocks, uint8_t* front, uint8_t* block);
//   };                                // rows: the file's blocks of this packed block, `blocks` of them exist
//
// May be left out:
//     static constexpr bool kHuge;    // scales of 2^100 and more occur
//     static constexpr bool kOnes;    // all whole scales are 1
//     static constexpr int kHighFrom, kHighTimes;  // lines<true>(block, j, use) gives lines from kHighFrom on times that,
//                                     // a power of two, for fewer instructions; such bytes may be above 127
//     static constexpr bool kHalved;  // with AVX-512 halves(block, j, use) gives halves of codes + kOffset, for less
//     static constexpr bool kRemainders;  // lines are (3 rest - next) / 256 for remainders(block, j, use), which calls
//                                     // use(t, Bytes rest, Bytes next)
//     static constexpr int kFold;     // kGroup is 16; whole scale * code + kFold is a byte (of the negated scale where it
//                                     // is 128). Then Scales::pair(j) is the two of 32 inputs as int16, and
//                                     // lines<true>(block, j, use) gives lines 4..7 times 16
#pragma once
#include <utility>

#include "linear/linear.h"
#include "simd/simd.h"

namespace mill::TM_ISA::linear {

using namespace mill::linear;

struct Geometry {
  int file_inputs, file_bytes;  // a block in the file
  int inputs, bytes, front;     // a packed block of 16 rows
};

struct FormatKernels {
  Type type;
  bool codes;                    // takes int8 activations
  Geometry geometry;
  void (*pack)(const uint8_t* const rows[16], int64_t columns, uint8_t* panel);
  void (*multiply)(const Matrix&, int64_t panel_begin, int64_t panel_end, const Activations&, const int32_t* x_rows,
                   int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void* scratch);
  void (*decode_row)(const uint8_t* panel, int row, int64_t columns, float* out);
  bool words = false;            // takes int16 activations
};

template <class F> constexpr Geometry geometry_of() {
  static_assert(F::kBytes % 64 == 0 && F::kInputs % F::kFileInputs == 0 && F::kInputs % 32 == 0);
  static_assert(512 % F::kInputs == 0 && (!F::kWide || F::kOffset == 128));
  static_assert(!F::kWhole || (F::kInputs == 256 && F::kFileInputs == 256));
  return {F::kFileInputs, F::kFileBytes, F::kInputs, F::kBytes, F::kFront};
}

// Bytes ahead, into the first and the second cache: the nearest cache alone has too few requests under way for DRAM
// (26 of 34 GB/s with two threads, 32 with both).
inline constexpr int64_t kPrefetch = 2048, kPrefetchFar = 16384;

inline constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t front_bytes(const Geometry& g, int64_t columns) {
  return (ceil_div(columns, g.inputs) * g.front + 63) / 64 * 64;
}
constexpr int64_t panel_size(const Geometry& g, int64_t columns) {
  return front_bytes(g, columns) + ceil_div(columns, g.inputs) * g.bytes;
}

template <int... i, class Use> TM_INLINE void unroll_each(std::integer_sequence<int, i...>, Use use) {
  (use(std::integral_constant<int, i>{}), ...);
}
// use(integral_constant 0), ..., use(n - 1): a loop whose counter can be a template argument.
template <int n, class Use> TM_INLINE void unroll(Use use) { unroll_each(std::make_integer_sequence<int, n>{}, use); }

template <class F> void pack_blocks(const uint8_t* const rows[16], int64_t columns, uint8_t* panel) {
  constexpr Geometry g = geometry_of<F>();
  uint8_t* block = panel + front_bytes(g, columns);
  std::memset(panel, 0, static_cast<size_t>(panel_size(g, columns)));
  const int64_t file_blocks = columns / g.file_inputs;
  constexpr int per = F::kInputs / F::kFileInputs;
  for (int64_t b = 0; b < ceil_div(columns, g.inputs); ++b) {
    const uint8_t* at[16];
    for (int r = 0; r < 16; ++r) at[r] = rows[r] + b * per * F::kFileBytes;
    const int64_t left = file_blocks - b * per;
    F::pack(at, static_cast<int>(left < per ? left : per), panel + b * F::kFront, block + b * F::kBytes);
  }
}

}  // namespace mill::TM_ISA::linear
