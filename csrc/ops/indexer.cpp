// indexer: which rows of a cache are worth attending to (OPS §3).
//
// Scores of one token's visible rows are made 64 rows at a time from keys that lie row-major in pages; the choice takes
// equal scores by lowest id, so it depends on the scores alone.
#include <cmath>

#include "ops/kernels.h"
#include "ops/sources.h"
#include "ops/stored.h"

namespace mill::TM_ISA {
namespace {

// Whether (a, i) ranks above (b, j).
TM_INLINE bool above(float a, int32_t i, float b, int32_t j) { return a > b || (a == b && i < j); }

// Sinks element `at` of a heap whose root ranks lowest.
void sink(int32_t* heap, int64_t n, int64_t at, const float* score) {
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= n) return;
    if (child + 1 < n && above(score[heap[child]], heap[child], score[heap[child + 1]], heap[child + 1])) ++child;
    if (!above(score[heap[at]], heap[at], score[heap[child]], heap[child])) return;
    const int32_t other = heap[at];
    heap[at] = heap[child];
    heap[child] = other;
    at = child;
  }
}

// The k best of score[0…n) that are not −∞, ids ascending, −1 filled.
void choose(const float* score, int64_t n, int64_t k, int32_t* ids) {
  int64_t have = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (score[j] == -INFINITY) continue;
    const auto id = static_cast<int32_t>(j);
    if (have < k) {
      ids[have++] = id;
      if (have == k)
        for (int64_t i = k / 2; i-- > 0;) sink(ids, k, i, score);
    } else if (above(score[j], id, score[ids[0]], ids[0])) {
      ids[0] = id;
      sink(ids, k, 0, score);
    }
  }
  // Ascending ids: heap sort by id, in place.
  const auto settle = [&](int64_t at, int64_t size) {
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
      if (child + 1 < size && ids[child + 1] > ids[child]) ++child;
      if (ids[child] <= ids[at]) return;
      const int32_t other = ids[at];
      ids[at] = ids[child];
      ids[child] = other;
    }
  };
  for (int64_t i = have / 2; i-- > 0;) settle(i, have);
  for (int64_t size = have; size > 1;) {
    const int32_t last = ids[--size];
    ids[size] = ids[0];
    ids[0] = last;
    settle(0, size);
  }
  for (int64_t i = have; i < k; ++i) ids[i] = -1;
}

}  // namespace

// in: q [T, h, K], w [T, h], within [T, ·]?; out: ids [T, k]. object: PagedCache of keys.
// i: block (rows an id stands for), span of an id of `within`, most rows of a sequence.
void indexer(const Call& c, Pool& pool) {
  const auto& cache = c.object<PagedCache>(0);
  const Tensor &q = c.in[0], &w = c.in[1], &within = c.in[2], &out = c.out[0];
  const StepView& step = *c.step;
  const int64_t heads = q.n[2], width = q.n[3], k = out.n[3], block = c.i[0], most = c.i[2];
  Rows rows;
  rows.cache = &cache;
  rows.ratio = cache.ratio;
  rows.window = cache.window;
  rows.style = cache.style;
  rows.rows = cache.rows;
  rows.select = within;
  rows.span = c.i[1];
  const int32_t* table = step.tables[cache.table];
  const int64_t columns = step.table_columns[cache.table];
  split(pool, step.T, 1e5, [&](int64_t begin, int64_t end, int thread) {
    float* score = reinterpret_cast<float*>(pool.scratch(thread));
    float* keys = score + (most + 2 * kBlock) / kLanes * kLanes;
    float* query = keys + width * kBlock;
    float* each = query + (heads * width + kLanes - 1) / kLanes * kLanes;
    float* row = each + heads * kBlock;
    int64_t s = 0;
    for (int64_t t = begin; t < end; ++t) {
      while (t >= step.seq_start[s + 1]) ++s;
      int64_t first, last;
      rows.visible(step, s, t, first, last);
      for (int64_t j = 0; j < last; ++j) score[j] = -INFINITY;
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t j = 0; j < width; ++j) query[h * width + j] = q.f32()[t * q.s[1] + h * q.s[2] + j];
      for (int64_t b = first / cache.rows; b * cache.rows < last; ++b) {
        const uint64_t mask = rows.mask(t, b, first, last);
        if (mask == 0) continue;
        const std::byte* page = cache.block(table[s * columns + b / cache.blocks], 0, b % cache.blocks);
        for (int64_t r = 0; r < cache.rows; ++r) {
          if (!(mask >> r & 1)) continue;
          widen_row(cache.type, page, cache.k_stride, r, width, row);
          for (int64_t j = 0; j < width; ++j) keys[j * kBlock + r] = row[j];
        }
        product(query, width, heads, Dense<float>{keys, kBlock}, (cache.rows + kLanes - 1) / kLanes, 0, width, {each, kBlock});
        for (int64_t r = 0; r < cache.rows; ++r) {
          if (!(mask >> r & 1)) continue;
          float total = 0.0f;
          for (int64_t h = 0; h < heads; ++h) {
            const float x = each[h * kBlock + r];
            total += w.f32()[t * w.s[2] + h] * (x > 0.0f ? x : 0.0f);
          }
          score[b * cache.rows + r] = total;
        }
      }
      int64_t n = last;
      if (block > 1) {
        int64_t newest = -1;
        for (int64_t j = 0; j < last; ++j) newest = score[j] > -INFINITY ? j : newest;
        n = (last + block - 1) / block;
        for (int64_t b = 0; b < n; ++b) {
          float top = -INFINITY;
          for (int64_t j = b * block; j < b * block + block && j < last; ++j) top = score[j] > top ? score[j] : top;
          score[b] = top;
        }
        if (newest >= 0) score[newest / block] = INFINITY;
      }
      choose(score, n, k, out.i32() + t * out.s[2]);
    }
  });
}

}  // namespace mill::TM_ISA
