// Kernels of the types with codebooks.
#include "linear/formats/codebook.h"

#include "linear/quantised.h"

namespace mill::TM_ISA::linear {

extern const FormatKernels kCodebook[] = {
    quantised<IQ1_S>(Type::IQ1_S),
    quantised<IQ1_M>(Type::IQ1_M),
    quantised<SignedCodebook<IQ2_XXS_Row>>(Type::IQ2_XXS),
    quantised<SignedCodebook<IQ2_XS_Row>>(Type::IQ2_XS),
    quantised<SignedCodebook<IQ2_S_Row>>(Type::IQ2_S),
    quantised<SignedCodebook<IQ3_XXS_Row>>(Type::IQ3_XXS),
    quantised<SignedCodebook<IQ3_S_Row>>(Type::IQ3_S),
    {},
};

}  // namespace mill::TM_ISA::linear
