// The two 16-entry tables of 4-bit codes, with an offset that makes them unsigned bytes.
#pragma once
#include "linear/formats/lines.h"

namespace mill::TM_ISA::linear {

alignas(16) inline constexpr uint8_t kIQ4Codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,   // -127 .. 113, + 128
                                                      129, 141, 153, 166, 181, 197, 217, 241};
alignas(16) inline constexpr uint8_t kFP4Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24,           // twice E2M1, + 12
                                                      12, 11, 10, 9,  8,  6,  4,  0};

template <class Use> TM_INLINE void table_lines(const uint8_t* codes, const uint8_t* at, Use use) {
  const Bytes table = table16(codes);
  unroll<4>([&](auto t) TM_LAMBDA {
    const Bytes raw = load_bytes(at + 64 * t);
    use(t, look_up_nibble(table, raw));
    use(t + 4, look_up_nibble(table, shift_right<4>(raw)));
  });
}

}  // namespace mill::TM_ISA::linear
