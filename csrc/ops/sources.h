// Where the rows of an attention come from, and which of them a token may see (OPS §3, attention sources).
#pragma once

#include "ops/coded.h"
#include "ops/op.h"

namespace mill::TM_ISA {

// A paged cache, or this step's own keys and values; perhaps only selected rows.
struct Rows {
  const PagedCache* cache = nullptr;
  Tensor k, v, select;
  int64_t span = 1, ratio = 1, window = 0, style = kSlide;
  int64_t rows = kBlock, lanes = kBlock, per_page = 1;  // of a block; blocks of a page
  const int32_t* table = nullptr;
  int64_t columns = 0;

  // Rows first…last (exclusive) that token t of sequence s may see, apart from the selection.
  TM_INLINE void visible(const StepView& step, int64_t s, int64_t t, int64_t& first, int64_t& last) const {
    const int64_t i = step.index[t], w = window;
    first = 0;
    last = (step.until[t] + 1) / ratio;
    const auto at_least = [&](int64_t index) {  // rows that start at `index` or later
      const int64_t row = index <= 0 ? 0 : (index + ratio - 1) / ratio;
      first = row > first ? row : first;
    };
    const auto before = [&](int64_t index) {  // rows that start before `index`
      const int64_t row = (index + ratio - 1) / ratio;
      last = row < last ? row : last;
    };
    if (w > 0 && style == kSlide) at_least(i - w + 1);
    if (w > 0 && style == kChunk) at_least(i / w * w), before(i / w * w + w);
    if (w > 0 && style == kCentred) at_least(i - w / 2), before(i + w / 2 + 1);
    if (!cache) {
      at_least(step.past[s]);
      before(step.past[s] + step.seq_start[s + 1] - step.seq_start[s]);
    }
    if (last < first) last = first;
  }

  // Which of block b's rows token t sees: rows first…last, and selected.
  TM_INLINE uint64_t mask(int64_t t, int64_t b, int64_t first, int64_t last) const {
    const int64_t base = b * rows;
    const int64_t lo = first > base ? first - base : 0, hi = last - base < rows ? last - base : rows;
    uint64_t bits = hi <= 0 ? 0 : bits_between(lo, hi);
    if (!select || bits == 0) return bits;
    uint64_t chosen = 0;
    const int32_t* ids = select.i32() + t * select.s[2];
    for (int64_t i = 0; i < select.n[3]; ++i) {
      const int64_t row = ids[i] * span;
      if (ids[i] >= 0 && row < base + rows && row + span > base)
        chosen |= bits_between(row > base ? row - base : 0, row + span - base < rows ? row + span - base : rows);
    }
    return bits & chosen;
  }
};

}  // namespace mill::TM_ISA
