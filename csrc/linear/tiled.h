// Products of many tokens by sets with tiles (tiled/), and the proof of their bits and their worth.
#pragma once
#include <type_traits>

#include "linear/linear.h"

namespace mill {
namespace linear {

using Multiply = std::remove_pointer_t<decltype(Kernels::multiply)>;

// Whether `multiply` gives what AVX-512's kernels give, bit for bit, and whether it is faster; of random numbers.
bool agrees(Multiply* multiply, Type type);
bool pays(Multiply* multiply);

}  // namespace linear

#ifdef TM_HAS_amx
namespace amx::linear { mill::linear::Multiply multiply; }
#endif
#ifdef TM_HAS_amx_emulated
namespace amx_emulated::linear { mill::linear::Multiply multiply; }
#endif

}  // namespace mill
