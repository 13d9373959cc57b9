// kv_write: stores this step's keys and values in their pages, rounded to the cache's type.
#include "ops/kernels.h"
#include "ops/stored.h"

namespace mill::TM_ISA {
namespace {

constexpr int64_t kChunk = 64;  // entries that one work item stores

// Values of one row → row-major, padded lanes untouched.
TM_INLINE void store_values(const float* from, int64_t n, float* to) {
  for (int64_t j = 0; j < n; j += kLanes) store_row(to + j, load_row(from, j, 1, n - j), n - j);
}
template <class E>
TM_INLINE void store_values(const float* from, int64_t n, E* to) {
  for (int64_t j = 0; j < n; j += kLanes) store(to + j, load_row(from, j, 1, n - j));  // rows are padded to 16
}

// Key of one row → column `row` of its block.
TM_INLINE void store_column(const float* from, int64_t n, float* to, int64_t lanes) {
  for (int64_t j = 0; j < n; ++j) to[j * lanes] = from[j];
}
template <class E>
TM_INLINE void store_column(const float* from, int64_t n, E* to, int64_t lanes) {
  E half[kLanes];
  for (int64_t j = 0; j < n; j += kLanes) {
    store(half, load_row(from, j, 1, n - j));
    for (int64_t i = 0; i < kLanes && j + i < n; ++i) to[(j + i) * lanes] = half[i];
  }
}

template <class E>
void write_one(const PagedCache& cache, std::byte* block, int64_t row, const float* k, const float* v) {
  E* keys = reinterpret_cast<E*>(block);
  if (cache.v == 0) return store_values(k, cache.k, keys + row * cache.k_stride);
  store_column(k, cache.k, keys + row, cache.lanes);
  store_values(v, cache.v, reinterpret_cast<E*>(block + cache.v_offset) + row * cache.v_stride);
}

void write_words(const PagedCache& cache, std::byte* block, int64_t row, const float* k, const float* v) {
  if (cache.v == 0) return write_one<uint16_t>(cache, block, row, k, v);
  store_word_key(k, cache.k, block, row, cache.lanes);
  store_word_value(v, cache.v, block + cache.v_offset, row, cache.lanes, cache.v_stride);
}

template <class Q>
void write_blocks(const PagedCache& cache, std::byte* block, int64_t row, const float* k, const float* v) {
  if (cache.v == 0) return store_blocks<Q>(k, cache.k, block + row * cache.k_stride);
  store_block_key<Q>(k, cache.k, block, row, cache.lanes);
  store_block_value<Q>(v, cache.v, block + cache.v_offset, row, cache.lanes);
}

using Write = void (*)(const PagedCache&, std::byte*, int64_t, const float*, const float*);

Write writer(int32_t type) {
  switch (type) {
    case kF16: return write_words;
    case kBF16: return write_one<BF16>;
    case kQ8_0: return write_blocks<Q8_0>;
    case kQ4_0: return write_blocks<Q4_0>;
    default: return write_one<float>;
  }
}

}  // namespace

// in: k [N, G, K], v [N, G, Kv]?, rows [N]? (the tokens whose entries these are; none: token n). object: PagedCache.
void kv_write(const Call& c, Pool& pool) {
  const auto& cache = c.object<PagedCache>(0);
  const Tensor &k = c.in[0], &v = c.in[1], &rows = c.in[2];
  const StepView& step = *c.step;
  const int32_t* table = step.tables[cache.table];
  const int64_t columns = step.table_columns[cache.table];
  const int64_t n = k.n[1], chunks = (n + kChunk - 1) / kChunk;
  const Write write = writer(cache.type);
  const double ns = 1.2 * static_cast<double>((n < kChunk ? n : kChunk) * (cache.k + cache.v));
  split(pool, chunks * cache.heads, ns, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t g = item % cache.heads, first = item / cache.heads * kChunk;
      int64_t s = 0;
      for (int64_t e = first; e < first + kChunk && e < n; ++e) {
        const int64_t token = rows ? rows.i32()[e] : e;
        while (token >= step.seq_start[s + 1]) ++s;
        const int64_t row = step.index[token] / cache.ratio, block = row / cache.rows;
        const int64_t page = table[s * columns + block / cache.blocks];
        std::byte* to = cache.block(page, g, block % cache.blocks);
        const float* key = k.f32() + e * k.s[1] + g * k.s[2];
        const float* value = v ? v.f32() + e * v.s[1] + g * v.s[2] : nullptr;
        write(cache, to, row % cache.rows, key, value);
      }
    }
  });
}

}  // namespace mill::TM_ISA
