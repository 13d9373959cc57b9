// Every op kernel of one instruction set; `kernels` (table.cpp) lists them by name for the replay.
#pragma once

#include "isa.h"
#include "ops/op.h"

#define TM_KERNELS(X)                                                                                        \
  X(add) X(mul) X(where) X(unary) X(glu) X(copy) X(convert)                                                  \
  X(rms_norm) X(layer_norm) X(softmax) X(sum) X(sinkhorn) X(hadamard)                                        \
  X(embed) X(embed_table) X(gather_rows) X(put_rows) X(concat) X(pool_rows) X(top_k)                         \
  X(quantise) X(linears) X(group) X(expert_linears) X(angles) X(rope) X(route) X(mix) X(kv_write) X(attention)      \
  X(tail) X(ssm_scan) X(delta_rule) X(indexer)

namespace mill {
#ifdef TM_ISA
namespace TM_ISA {
#define TM_DECLARE(name) void name(const Call&, Pool&);
TM_KERNELS(TM_DECLARE)
#undef TM_DECLARE
int64_t attention_scratch(int64_t group, int64_t width, int64_t values);
}  // namespace TM_ISA
#endif
TM_DECLARE_TABLE(KernelTable, op_kernels)
}  // namespace mill
