// The kernels of this instruction set, by name.
#include "ops/kernels.h"

namespace mill::TM_ISA {
namespace {

#define TM_ENTRY(name) {#name, name},
constexpr KernelEntry kEntries[] = {TM_KERNELS(TM_ENTRY)};
#undef TM_ENTRY

}  // namespace

extern const KernelTable op_kernels;
const KernelTable op_kernels = {kEntries, sizeof kEntries / sizeof kEntries[0], attention_scratch};

}  // namespace mill::TM_ISA
