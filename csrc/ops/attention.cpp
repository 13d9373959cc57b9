// attention: one softmax over the visible rows of all sources (OPS §3), merged in one order (OPS §6).
//
// Queries of one token tile that share a KV head are worked together, so keys and values are read once for them. Blocks
// of 64 rows are merged into spans of 4 blocks at absolute places, spans into the whole, ascending; a decode over a long
// past gives spans to threads and merges them afterwards, with the same bits.
#include <cmath>

#include "ops/biases.h"
#include "ops/kernels.h"
#include "ops/passes.h"
#include "ops/sources.h"

namespace mill::TM_ISA {
namespace {

constexpr int64_t kSpan = 4;       // blocks
constexpr int64_t kQueries = 120;  // about as many in a tile: they share widened keys and values
constexpr int kSources = 4;
constexpr float kBase2 = 1.44269504f;  // scores are times this: e^x = 2^(kBase2·x)

struct Attention {
  const Call& c;
  Pool& pool;
  const Tensor &q, &out;
  int64_t heads, width, group, kv_heads, values, v_stride, tile_tokens;
  int n_sources;
  Rows sources[kSources];
  int32_t code_offset = -1;  // of the blocks of codes among the sources, if any
  bool words = false;         // whether any of them keeps rows of integers
  float scale, softcap, alibi;
  const Tensor &sinks, &bias;
  int64_t buckets;

  Attention(const Call& call, Pool& p);
  Tile tile_of(int thread) const { return lay_out(pool.scratch(thread), tile_tokens * group, width, v_stride); }
  void load_queries(const Tile& tile, int64_t t, int64_t n, int64_t g) const;
  bool see(const Tile& tile, const Rows& rows, int64_t s, int64_t t, int64_t n, int64_t& b0, int64_t& b1) const;
  void block(const Tile& tile, const Rows& rows, int64_t s, int64_t t, int64_t n, int64_t g, int64_t b) const;
  void span(const Tile& tile, const Rows& rows, int64_t s, int64_t t, int64_t n, int64_t g, int64_t b0, int64_t b1) const;
  void adjust(float* score, int64_t head, int64_t t, const Rows& rows, int64_t b) const;
  void finish(const Partial& total, int64_t t, int64_t n, int64_t g) const;
  void whole_tile(int64_t s, int64_t t, int64_t n, int64_t g, int thread) const;
};

// i: sources, buckets, then for each source: is a cache, span of a selected id, style, window.
// in: q, sinks?, bias?, then for each source: own k, own v, selected ids. f: scale, softcap, alibi.
Attention::Attention(const Call& call, Pool& p)
    : c(call), pool(p), q(call.in[0]), out(call.out[0]), heads(q.n[2]), width(q.n[3]), values(out.n[3]),
      n_sources(static_cast<int>(call.i[0])), scale(call.f[0]), softcap(call.f[1]), alibi(call.f[2]), sinks(call.in[1]),
      bias(call.in[2]), buckets(call.i[1]) {
  for (int k = 0; k < n_sources; ++k) {
    Rows& rows = sources[k];
    const int64_t* a = call.i + 2 + 4 * k;
    rows.k = call.in[3 + 3 * k];
    rows.v = call.in[4 + 3 * k];
    rows.select = call.in[5 + 3 * k];
    rows.span = a[1];
    rows.style = a[2];
    rows.window = a[3];
    if (a[0]) {
      const auto& cache = call.object<PagedCache>(k);
      rows.cache = &cache;
      rows.ratio = cache.ratio;
      rows.rows = cache.rows;
      rows.lanes = cache.lanes;
      rows.per_page = cache.blocks;
      rows.table = call.step->tables[cache.table];
      rows.columns = call.step->table_columns[cache.table];
      kv_heads = cache.heads;
      words |= cache.v && cache.type == kF16;
      if (cache.v && cache.type == kQ8_0) code_offset = Q8Lines::kOffset;
      if (cache.v && cache.type == kQ4_0) code_offset = Q4Lines::kOffset;
    } else {
      kv_heads = rows.k.n[2];
    }
  }
  group = heads / kv_heads;
  v_stride = (values + kLanes - 1) / kLanes * kLanes;
  tile_tokens = group >= kQueries ? 1 : kQueries / group;
  for (int k = 0; k < n_sources; ++k)
    if (sources[k].select) tile_tokens = 1;
}

void Attention::load_queries(const Tile& tile, int64_t t, int64_t n, int64_t g) const {
  for (int64_t i = 0; i < n * group; ++i) {
    const float* from = q.f32() + (t + i / group) * q.s[1] + (g * group + i % group) * q.s[2];
    float* to = tile.q + i * width;
    for (int64_t j = 0; j < width; j += kLanes) store_row(to + j, load_row(from, j, 1, width - j) * splat(scale), width - j);
    const Wide codes = tile.codes.from(i);
    const Words integers = words_of(tile.codes).from(i);
    if (code_offset >= 0) round_query(to, codes, code_offset), *codes.scale *= kBase2;
    if (words) round_query(to, width, integers), *integers.scale *= kBase2;
    for (int64_t j = 0; j < width; j += kLanes) store_row(to + j, load_row(to, j, 1, width - j) * splat(kBase2), width - j);
  }
}

// Visible rows of the tile's tokens, and the blocks b0…b1 in which any of them sees something.
bool Attention::see(const Tile& tile, const Rows& rows, int64_t s, int64_t t, int64_t n, int64_t& b0, int64_t& b1) const {
  int64_t lowest = INT64_MAX, highest = 0;
  for (int64_t i = 0; i < n; ++i) {
    rows.visible(*c.step, s, t + i, tile.first[i], tile.last[i]);
    if (tile.first[i] == tile.last[i]) continue;
    lowest = tile.first[i] < lowest ? tile.first[i] : lowest;
    highest = tile.last[i] > highest ? tile.last[i] : highest;
  }
  b0 = lowest / rows.rows;
  b1 = (highest + rows.rows - 1) / rows.rows;
  return highest > 0;
}

// Softcap, then biases by distance; scores are those of powers of two.
void Attention::adjust(float* score, int64_t head, int64_t t, const Rows& rows, int64_t b) const {
  if (softcap != 0.0f)
    for (int64_t j = 0; j < rows.lanes; j += kLanes)
      store(score + j, tanh(load(score + j) / splat(softcap * kBase2)) * splat(softcap * kBase2));
  if (alibi == 0.0f && !bias) return;
  const float slope = alibi != 0.0f ? slope_of(head, heads, alibi) * kBase2 : 0.0f;
  for (int64_t j = 0; j < rows.rows; ++j) {
    const int64_t away = (b * rows.rows + j) * rows.ratio - c.step->index[t];
    if (alibi != 0.0f) score[j] -= slope * static_cast<float>(away < 0 ? -away : away);
    if (bias) score[j] += bias.f32()[bucket(away, buckets) * bias.s[2] + head] * kBase2;
  }
}

// A row-major key → column `to` of a block; n numbers.
void transpose(const float* from, int64_t n, float* to) {
  for (int64_t j = 0; j < n; ++j) to[j * kBlock] = from[j];
}

// Attention of the tile over block b joins tile.span.
void Attention::block(const Tile& tile, const Rows& rows, int64_t s, int64_t t, int64_t n, int64_t g, int64_t b) const {
  const int64_t queries = n * group;
  uint64_t any = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t mask = rows.mask(t + i, b, tile.first[i], tile.last[i]);
    any |= mask;
    for (int64_t h = 0; h < group; ++h) tile.masks[i * group + h] = mask;
  }
  if (any == 0) return;
  const bool many = queries > kNarrowQ;
  const int64_t lo = __builtin_ctzll(any), hi = 64 - __builtin_clzll(any);
  // What follows comes while this block is used: with its lines by few queries, a share with each pass of many.
  const std::byte* next = nullptr;
  if (rows.cache && (b + 1) * rows.rows < tile.last[n - 1]) {
    const PagedCache& cache = *rows.cache;
    next = cache.block(rows.table[s * rows.columns + (b + 1) / cache.blocks], g, (b + 1) % cache.blocks);
  }
  const auto attend = [&](int64_t most_at_once, const auto& score, auto&& then, const auto& weigh) {
    const auto scores = [&](const Pass& pass) {
      if (many && next) {
        const int64_t bytes = rows.cache->block_bytes, share = (bytes * most_at_once / queries + 63) / 64 * 64;
        const int64_t from = pass.first / most_at_once * share, to = from + share < bytes ? from + share : bytes;
        for (int64_t at = from; at < to; at += 64) prefetch_far(next + at);
      }
      score(pass);
      if (softcap == 0.0f && alibi == 0.0f && !bias) return;
      for (int64_t i = 0, q = pass.first; i < pass.count; ++i, ++q)
        adjust(pass.s + i * kBlock, g * group + q % group, t + q / group, rows, b);
    };
    in_passes(tile, queries, most_at_once, rows.lanes / kLanes, scores, then, weigh);
  };
  const auto store_each = [&](int64_t, uint64_t, const auto& p, float* row) TM_INLINED {
    for (int v = 0; v < static_cast<int>(std::size(p)); ++v) store(row + v * kLanes, p[v]);
  };
  const auto attend_rows = [&]<class K, class V>(const K& keys, int64_t lanes, const V& v) {
    static_assert(K::kMostQ == V::kMostQ);
    attend(
        K::kMostQ,
        [&](const Pass& pass) {
          const float* q = tile.q + pass.first * width;
          for (int64_t j = 0; j < pass.count * width; j += kLanes) prefetch(q + pass.count * width + j);
          product(q, width, pass.count, keys, lanes / kLanes, 0, width, {pass.s, kBlock});
        },
        store_each,
        [&](Pass& pass) {
          const Partial block{pass.how.keep, pass.how.take, tile.block, pass.into.stride};
          weigh(pass.s, pass.count, v, pass.masks, pass.into, block);
        });
  };
  const Dense<float> wide_keys{tile.k, kBlock}, wide_values{tile.v, v_stride};
  if (rows.cache) {
    const PagedCache& cache = *rows.cache;
    const std::byte* p = cache.block(rows.table[s * rows.columns + b / cache.blocks], g, b % cache.blocks);
    const std::byte* v = p + cache.v_offset;
    const Fetch fetch{p, many ? nullptr : next, cache.block_bytes / 256 * 64};
    fetch.begin(cache.v_offset);
    if (!cache.v) {
      for (int64_t r = lo; r < hi; ++r) {
        widen_row(cache.type, p, cache.k_stride, r, padded(width), tile.v);
        transpose(tile.v, width, tile.k + r);
      }
      for (int64_t r = lo; r < hi; ++r) widen_row(cache.type, p, cache.k_stride, r, v_stride, tile.v + r * v_stride);
      return attend_rows(wide_keys, kBlock, wide_values);
    }
    const auto codes = [&]<class C>() {
      const CodedBlock block{p, v, width, v_stride / kLanes, rows.lanes, fetch};
      value_scales<C>(block, tile.d);
      const int64_t parts = (queries + kWideQ - 1) / kWideQ;
      attend(
          (queries + parts - 1) / parts,
          [&](const Pass& pass) { code_scores<C>(block, tile.codes.from(pass.first), pass.count, pass.s); }, store_each,
          [&](const Pass& pass) {
            Wide weights = tile.weights;
            weights.n = rows.lanes;
            weigh_codes<C>(block, pass.s, pass.count, tile.d, pass.masks, weights, pass.into, pass.how.keep, pass.how.take);
          });
    };
    const auto integers = [&] {
      const CodedBlock block{p, v, width, v_stride / kLanes, rows.lanes, fetch};
      word_scales(block, tile.k, tile.d);
      const int64_t parts = (queries + kWordsQ - 1) / kWordsQ;
      Weights weights{tile.d};
      attend(
          (queries + parts - 1) / parts,
          [&](const Pass& pass) {
            const Words q = words_of(tile.codes).from(pass.first);
            for (int64_t j = 0; j < pass.count * q.n; j += 32) prefetch(q.codes + pass.count * q.n + j);
            score_words(block, tile.k, q, pass.count, lo, hi, pass.s);
          },
          weights,
          [&](const Pass& pass) {
            weigh_words(block, weights, pass.s, pass.count, lo, hi, words_of(tile.weights), pass.into, pass.how);
          });
    };
    const auto dense = [&]<class E>(E) {
      const E *key = reinterpret_cast<const E*>(p), *value = reinterpret_cast<const E*>(v);
      // For few queries numbers are widened as they are multiplied, for more of them once for all.
      if (sizeof(E) == 4 || queries <= kNarrowQ)
        return attend_rows(Dense<E>{key, rows.lanes, fetch}, rows.lanes, Dense<E>{value, cache.v_stride, fetch});
      widen(key, width * rows.lanes, tile.k);
      for (int64_t r = lo; r < hi; ++r) widen(value + r * cache.v_stride, v_stride, tile.v + r * v_stride);
      attend_rows(Dense<float>{tile.k, rows.lanes}, rows.lanes, wide_values);
    };
    switch (cache.type) {
      case kF16: return integers();
      case kBF16: return dense(BF16{});
      case kQ8_0: return codes.operator()<Q8Lines>();
      case kQ4_0: return codes.operator()<Q4Lines>();
      default: return dense(0.0f);
    }
  }
  // This step's own rows: row r of the block is token `at + r`.
  const int64_t at = b * rows.rows - c.step->past[s] + c.step->seq_start[s];
  const Tensor& value = rows.v ? rows.v : rows.k;
  const auto row_of = [](const Tensor& x, int64_t token, int64_t head) { return x.f32() + token * x.s[1] + head * x.s[2]; };
  for (int64_t r = lo; r < hi; ++r) {
    transpose(row_of(rows.k, at + r, g), width, tile.k + r);
    for (int64_t j = 0; j < values; j += kLanes)
      store(tile.v + r * v_stride + j, load_row(row_of(value, at + r, g), j, 1, values - j));
  }
  attend_rows(wide_keys, kBlock, wide_values);
}

// Blocks b0…b1 of one span → tile.span.
void Attention::span(const Tile& tile, const Rows& rows, int64_t s, int64_t t, int64_t n, int64_t g, int64_t b0,
                     int64_t b1) const {
  for (int64_t i = 0; i < padded(n * group); ++i) tile.span.m[i] = -INFINITY, tile.span.l[i] = 0.0f;
  for (int64_t b = b0; b < b1; ++b) block(tile, rows, s, t, n, g, b);
}

// Adds the sinks, divides, and stores what token rows t…t+n hold of KV head g.
void Attention::finish(const Partial& total, int64_t t, int64_t n, int64_t g) const {
  for (int64_t i = 0; i < n * group; ++i) {
    const int64_t head = g * group + i % group;
    float* to = out.f32() + (t + i / group) * out.s[1] + head * out.s[2];
    float factor = 1.0f, sum = total.l[i];
    if (sinks) {
      const float sink = sinks.f32()[head] * kBase2, most = total.m[i] > sink ? total.m[i] : sink;
      float delta[kLanes] = {total.m[i] - most, sink - most};
      store(delta, exp2_falling(load(delta)));
      factor = delta[0];
      sum = sum * factor + delta[1];
    }
    const bool none = total.m[i] == -INFINITY;
    const Lanes by = splat(none ? 0.0f : factor / sum);
    for (int64_t j = 0; j < values; j += kLanes)
      store_row(to + j, none ? splat(0.0f) : load(total.o + i * total.stride + j) * by, values - j);
  }
}

void Attention::whole_tile(int64_t s, int64_t t, int64_t n, int64_t g, int thread) const {
  const Tile tile = tile_of(thread);
  load_queries(tile, t, n, g);
  for (int64_t i = 0; i < padded(n * group); ++i) tile.total.m[i] = -INFINITY, tile.total.l[i] = 0.0f;
  for (int k = 0; k < n_sources; ++k) {
    int64_t b0, b1;
    if (!see(tile, sources[k], s, t, n, b0, b1)) continue;
    for (int64_t a = b0 / kSpan; a * kSpan < b1; ++a) {
      span(tile, sources[k], s, t, n, g, a * kSpan > b0 ? a * kSpan : b0, a * kSpan + kSpan < b1 ? a * kSpan + kSpan : b1);
      merge(tile.total, tile.span, n * group);
    }
  }
  finish(tile.total, t, n, g);
}

// Token tiles of all sequences: calls f(s, first token, tokens, ordinal).
template <class F>
void for_tiles(const StepView& step, int64_t most, const F& f) {
  int64_t ordinal = 0;
  for (int64_t s = 0; s < step.S; ++s)
    for (int64_t t = step.seq_start[s]; t < step.seq_start[s + 1]; t += most)
      f(s, t, step.seq_start[s + 1] - t < most ? step.seq_start[s + 1] - t : most, ordinal++);
}

// One span of one tile and KV head, as the split over threads sees it.
struct Piece {
  int32_t s, t, n, g, source, b0, b1, unused;
};

}  // namespace

// Bytes of scratch a thread needs: most queries of a tile, K and the padded width of values.
int64_t attention_scratch(int64_t group, int64_t width, int64_t values) {
  const int64_t n = group >= kQueries ? group : kQueries;
  return 4 * tile_floats(n, width, padded(values));
}

void attention(const Call& call, Pool& pool) {
  const Attention a(call, pool);
  const StepView& step = *call.step;
  int64_t tiles = 0;
  int64_t longest = 0;  // tokens of a tile
  for_tiles(step, a.tile_tokens, [&](int64_t, int64_t, int64_t n, int64_t) { ++tiles, longest = n > longest ? n : longest; });
  const int64_t items = tiles * a.kv_heads;

  // Few tiles over a long past: give spans to threads, if they fit in the work space (out[1]).
  if (items < 3 * pool.threads() && pool.threads() > 1 && step.T <= a.tile_tokens * 8) {
    const int64_t n = longest * a.group;  // queries of a tile
    const int64_t room = call.out[1].n[3], each = n * a.v_stride + 2 * padded(n);
    const int64_t most = room / (each + static_cast<int64_t>(sizeof(Piece) / 4));
    auto* pieces = reinterpret_cast<Piece*>(call.out[1].data);
    float* results = call.out[1].f32() + most * static_cast<int64_t>(sizeof(Piece) / 4);
    int64_t count = 0;
    const Tile outline = a.tile_of(0);
    for_tiles(step, a.tile_tokens, [&](int64_t s, int64_t t, int64_t n, int64_t) {
      for (int64_t g = 0; g < a.kv_heads; ++g)
        for (int k = 0; k < a.n_sources; ++k) {
          int64_t b0, b1;
          if (!a.see(outline, a.sources[k], s, t, n, b0, b1)) continue;
          for (int64_t at = b0 / kSpan; at * kSpan < b1; ++at, ++count)
            if (count < most)
              pieces[count] = {static_cast<int32_t>(s), static_cast<int32_t>(t), static_cast<int32_t>(n),
                               static_cast<int32_t>(g), k,
                               static_cast<int32_t>(at * kSpan > b0 ? at * kSpan : b0),
                               static_cast<int32_t>(at * kSpan + kSpan < b1 ? at * kSpan + kSpan : b1), 0};
        }
    });
    if (count > items && count <= most) {
      const auto partial = [&](int64_t i) {
        float* p = results + i * each;
        return Partial{p, p + padded(n), p + 2 * padded(n), a.v_stride};
      };
      // Neighbours go to a thread together and often share their queries.
      pool.ranges(count, [&](int64_t begin, int64_t end, int thread) {
        Tile tile = a.tile_of(thread);
        for (int64_t i = begin; i < end; ++i) {
          const Piece &p = pieces[i], &before = pieces[i > begin ? i - 1 : i];
          int64_t b0, b1;
          if (i == begin || p.t != before.t || p.source != before.source) a.see(tile, a.sources[p.source], p.s, p.t, p.n, b0, b1);
          if (i == begin || p.t != before.t || p.g != before.g) a.load_queries(tile, p.t, p.n, p.g);
          tile.span = partial(i);
          a.span(tile, a.sources[p.source], p.s, p.t, p.n, p.g, p.b0, p.b1);
        }
      });
      for (int64_t i = 0; i < count;) {  // spans of one tile and head follow each other, ascending
        const Piece& p = pieces[i];
        const Partial total = partial(i);
        int64_t next = i + 1;
        for (; next < count && pieces[next].t == p.t && pieces[next].g == p.g; ++next)
          merge(total, partial(next), p.n * a.group);
        a.finish(total, p.t, p.n, p.g);
        i = next;
      }
      return;
    }
  }
  const auto work = [&](int64_t i, int thread) {
    const int64_t item = items - 1 - i;  // late tiles see most: they go first
    for_tiles(step, a.tile_tokens, [&](int64_t s, int64_t t, int64_t n, int64_t ordinal) {
      if (ordinal == item / a.kv_heads) a.whole_tile(s, t, n, item % a.kv_heads, thread);
    });
  };
  int64_t rows = 0;
  for (int64_t s = 0; s < step.S; ++s) rows += (step.seq_start[s + 1] - step.seq_start[s]) * (step.until[step.seq_start[s + 1] - 1] + 1);
  if (static_cast<double>(rows * a.heads * (a.width + a.values)) / 20 < kWorthWaking) {
    for (int64_t item = 0; item < items; ++item) work(item, 0);
  } else {
    pool.each(items, work);
  }
}

}  // namespace mill::TM_ISA
