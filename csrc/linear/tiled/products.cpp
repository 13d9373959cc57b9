// What a set with tiles adds to AVX-512: products of many tokens of quantised types. All else is AVX-512's.
#include "linear/call.h"

namespace mill {
namespace avx512 { extern const mill::linear::Kernels linear_kernels; }

namespace TM_ISA::linear {

extern const FormatKernels kLegacy[], kK[], kSmall[], kCodebook[];  // each ends with a row without a product

namespace {

// Up to here a product waits for its weights, or is done straight from packed bits (batch.h).
constexpr int64_t kFewTokens = 16;

const FormatKernels* find(Type type) {
  for (const FormatKernels* table : {kLegacy, kK, kSmall, kCodebook})
    for (; table->multiply != nullptr; ++table)
      if (table->type == type) return table;
  return nullptr;
}

}  // namespace

void multiply(const Matrix& m, int64_t begin, int64_t end, const Activations& x, const int32_t* x_rows, int64_t n_tokens,
              float* out, int64_t out_stride, const int32_t* out_rows, void* scratch) {
  const FormatKernels* tiled = n_tokens > kFewTokens ? find(m.type) : nullptr;
  const auto product = tiled != nullptr ? tiled->multiply : avx512::linear_kernels.multiply;
  product(m, begin, end, x, x_rows, n_tokens, out, out_stride, out_rows, scratch);
}

}  // namespace TM_ISA::linear
}  // namespace mill
