// Kernels of the types FP4, ternary, one and two bits.
#include "linear/formats/small.h"

#include "linear/quantised.h"

namespace mill::TM_ISA::linear {

extern const FormatKernels kSmall[] = {
    quantised<MXFP4>(Type::MXFP4), quantised<NVFP4>(Type::NVFP4), quantised<Q1_0>(Type::Q1_0),
    quantised<Q2_0>(Type::Q2_0),   quantised<TQ1_0>(Type::TQ1_0), quantised<TQ2_0>(Type::TQ2_0), {},
};

}  // namespace mill::TM_ISA::linear
