// What this machine can do at most, for `tensormill bench --roofline`: loops that only read, only multiply bytes or
// 16-bit numbers, only multiply floats. The loops are compiled per instruction set (ops/peak.cpp), the threads and clocks around them once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace mill {

struct PeakTable {
  int64_t (*read)(const std::byte* from, int64_t bytes);  // a value that depends on every byte
  double (*dot)(int64_t rounds);                           // operations done: products of bytes and their sums
  double (*pairs)(int64_t rounds);                         // the same of 16-bit numbers
  double (*fma)(int64_t rounds);                           // and of float32
};
TM_DECLARE_TABLE(PeakTable, peaks)

enum class Limit : int { dot, pairs, fma };

// Bytes a second at which `threads` threads together read `bytes`, and operations a second of a kind: the best of many passes.
double read_rate(int64_t bytes, int threads, int passes);
double operation_rate(Limit kind, int threads, int passes);

}  // namespace mill
