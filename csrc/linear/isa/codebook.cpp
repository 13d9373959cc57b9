// Kernels of the types with codebooks.
#include "linear/formats/codebook.h"

#include "linear/quantised.h"

namespace mill::TM_ISA::linear {

extern const FormatKernels kCodebook[] = {
    quantised<Codebook<IQ1_S_Row>>(Type::IQ1_S),     quantised<Codebook<IQ1_M_Row>>(Type::IQ1_M),
    quantised<Codebook<IQ2_XXS_Row>>(Type::IQ2_XXS), quantised<Codebook<IQ2_XS_Row>>(Type::IQ2_XS),
    quantised<Codebook<IQ2_S_Row>>(Type::IQ2_S),     quantised<Codebook<IQ3_XXS_Row>>(Type::IQ3_XXS),
    quantised<Codebook<IQ3_S_Row>>(Type::IQ3_S),     {},
};

}  // namespace mill::TM_ISA::linear
