// Kernels of the types with blocks of 256 inputs.
#include "linear/formats/k.h"

#include "linear/quantised.h"

namespace mill::TM_ISA::linear {

extern const FormatKernels kK[] = {
    quantised<Q2_K>(Type::Q2_K), quantised<Q3_K>(Type::Q3_K), quantised<Q4_K>(Type::Q4_K),
    quantised<Q5_K>(Type::Q5_K), quantised<Q6_K>(Type::Q6_K), quantised<IQ4_XS>(Type::IQ4_XS), {},
};

}  // namespace mill::TM_ISA::linear
