// A tile's queries over one block of keys, a few after the other, so that keys and values stay in the nearest cache.
//
// Scores of a pass come before the values of the one before it, and those before its softmax: each step ends in long chains of
// operations, and what follows it does not wait for them.
#pragma once

#include <type_traits>

#include "ops/scratch.h"

namespace mill::TM_ISA {

struct Pass {
  int64_t first, count;  // of the tile's queries
  float* s;              // scores, rows of kBlock
  const uint64_t* masks;
  Partial into;
  Joining how;
};

// score(pass) fills its scores, `then` takes probabilities (see `soften`), weigh(pass) adds the values.
template <class Score, class Then, class Weigh>
TM_INLINE void in_passes(const Tile& tile, int64_t queries, int64_t most_at_once, int64_t vectors, const Score& score, Then&& then,
                         const Weigh& weigh) {
  constexpr bool fine = !std::is_same_v<std::decay_t<Then>, Weights>;  // those are rounded to 15 bits
  Pass passes[2];
  for (int64_t i = 0, first = 0;; ++i, first += most_at_once) {
    const int64_t left = queries - first;
    Pass& pass = passes[i % 2];
    if (left > 0) {
      pass.first = first, pass.count = left < most_at_once ? left : most_at_once;
      pass.s = tile.s + i % 2 * kNarrowQ * kBlock, pass.masks = tile.masks + first, pass.into = tile.span.from(first);
      for (int64_t j = 0; j < pass.count * pass.into.stride; j += kLanes) prefetch(pass.into.o + j);
      score(pass);
      with_vectors(vectors, [&](auto v) { settle<v>(pass.s, pass.count, pass.masks, pass.into, pass.how); });
    }
    if (i > 0) weigh(passes[1 - i % 2]);
    if (left <= 0) return;
    with_vectors(vectors, [&](auto v) { soften<v, fine>(pass.s, pass.count, pass.masks, pass.into, pass.how, then); });
  }
}

}  // namespace mill::TM_ISA
