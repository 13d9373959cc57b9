// Kernels of the types with one scale for each 32 inputs.
#include "linear/formats/legacy.h"

#include "linear/quantised.h"

namespace mill::TM_ISA::linear {

extern const FormatKernels kLegacy[] = {
    quantised<Q4_0>(Type::Q4_0), quantised<Q4_1>(Type::Q4_1), quantised<Q5_0>(Type::Q5_0),
    quantised<Q5_1>(Type::Q5_1), quantised<Q8_0>(Type::Q8_0), quantised<IQ4_NL>(Type::IQ4_NL), {},
};

}  // namespace mill::TM_ISA::linear
