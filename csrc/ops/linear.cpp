// quantise, linears, group, expert_linears: hands ranges of panels to threads; the arithmetic is in csrc/linear.
#include "linear/linear.h"

#include "ops/kernels.h"
#include "ops/loops.h"
#include "ops/products.h"

namespace mill::TM_ISA {
namespace {

constexpr int64_t kFewTokens = 16;  // up to here a product waits for its weights rather than for arithmetic
constexpr int64_t kOneByOne = 8;      // up to here its panels are done one by one, else in pairs
constexpr int64_t kBlockTokens = 256;  // of a product of many: their activations and a sweep of outputs fit the second cache
constexpr int64_t kWorthCopying = 24;  // panels of a chunk of many tokens, which are copied together for it first

// Guessed nanoseconds of one thread for `panels` panels: reading them at 10 GB/s, or computing at 0.3 TOPS.
double cost(linear::Type type, int64_t columns, int64_t panels, int64_t tokens) {
  const double bytes = static_cast<double>(linear::panel_bytes(type, columns) * panels);
  const double products = static_cast<double>(tokens * columns * panels) * 2 * linear::kPanel;
  return bytes / 10 + products / (linear::takes_codes(type) ? 300 : linear::takes_words(type) ? 250 : 80);
}

enum Source : int64_t { kValues, kCodes, kWords };  // what a product reads, as its record says

linear::Activations activations(const Tensor* in, int64_t source, int64_t offset) {
  if (source == kValues) return {in[0].f32() + offset, nullptr, nullptr, nullptr, in[0].s[2]};
  if (source == kWords)
    return {nullptr, nullptr, in[1].f32() + offset / linear::kWordInputs, nullptr, in[0].s[2],
            static_cast<const int16_t*>(in[0].data) + offset};
  return {nullptr, static_cast<const int8_t*>(in[0].data) + offset, in[1].f32() + offset / 32,
          static_cast<const int16_t*>(in[2].data) + offset / 16, in[0].s[2]};
}

// y[row, first…last) · scale + bias for the listed rows.
TM_INLINE void finish(float* y, int64_t stride, const int32_t* rows, int64_t n, int64_t first, int64_t last, float scale,
                      const float* bias) {
  if (scale == 1.0f && bias == nullptr) return;
  for (int64_t i = 0; i < n; ++i) {
    float* row = y + (rows ? rows[i] : i) * stride;
    for (int64_t j = first; j < last; j += kLanes) {
      Lanes v = load_row(row, j, 1, last - j) * splat(scale);
      if (bias) v = v + load_row(bias, j, 1, last - j);
      store_row(row + j, v, last - j);
    }
  }
}

TM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
TM_INLINE int64_t greatest(int64_t a, int64_t b) { return a < b ? b : a; }

// How the products of a call are cut. Of many tokens: blocks of about 256 of them, each with chunks of whole pairs of panels,
// at most about 12 a thread in all, none under 2 µs. Of few: smaller ones, of which a thread takes several at once
// (`Pool::ranges`).
struct Cut {
  int64_t tokens, blocks, each = 0;  // panels of a chunk
  int64_t chunks = 0, items = 0;     // of a block, over all parts; of all blocks, 0 where one thread does it all

  Cut(const Call& c, int threads) : tokens(c.out[0].n[2]), blocks(tokens < 2 * kBlockTokens ? 1 : tokens / kBlockTokens) {
    double total = 0;
    int64_t panels = 0;
    for (int p = 0; p < c.n_objects; ++p) {
      const auto& m = c.object<linear::Matrix>(p);
      panels += linear::panels(m.rows);
      total += cost(m.type, m.columns, linear::panels(m.rows), tokens);
    }
    const bool few = tokens <= kFewTokens;
    const int64_t most = few ? threads * 64 : (threads * 12 + blocks - 1) / blocks;
    const int64_t count = least(most, static_cast<int64_t>(total / static_cast<double>(blocks) / (few ? 1000 : 2000)));
    if (threads == 1 || total < kWorthWaking || count * blocks < 2) return;
    each = (panels + count - 1) / (count > 0 ? count : 1);
    if (!few) each = greatest(each, least(kWorthCopying, panels * blocks / (2 * threads)));  // if that leaves a thread two
    if (tokens > kOneByOne) each += each & 1;
    for (int p = 0; p < c.n_objects; ++p) chunks += pieces(c, p);
    items = blocks * chunks;
  }
  int64_t pieces(const Call& c, int part) const {
    return (linear::panels(c.object<linear::Matrix>(part).rows) + each - 1) / each;
  }
  // The part that a chunk belongs to; `chunk` becomes its number there.
  int part(const Call& c, int64_t& chunk) const {
    int p = 0;
    for (; p + 1 < c.n_objects && chunk >= pieces(c, p); ++p) chunk -= pieces(c, p);
    return p;
  }
  int64_t first_token(int64_t block) const { return tokens * block / blocks; }
};

// Tells each thread where its share of a product of few tokens begins: it may fetch that while small ops run.
void announce(const Call* next, Pool& pool) {
  if (next == nullptr || next->out[0].n[2] > kFewTokens) return;
  const Cut cut(*next, pool.threads());
  for (int t = 0; cut.items > 0 && t < pool.threads(); ++t) {
    int64_t item = pool.first_of(t, cut.items);
    const auto& m = next->object<linear::Matrix>(cut.part(*next, item));
    const int64_t bytes = linear::panel_bytes(m.type, m.columns), first = item * cut.each;
    pool.ahead(t, m.data + first * bytes, (linear::panels(m.rows) - first) * bytes);
  }
}

}  // namespace

// in: x [N, K]; out: codes int8 [N, K], scales [N, K/32], sums int16 [N, K/16]; or int16 [N, K], scales [N, K/64], –.
void quantise(const Call& c, Pool& pool) {
  const Tensor& x = c.in[0];
  split(pool, x.n[2], 0.15 * static_cast<double>(x.n[3]) + 3, [&](int64_t begin, int64_t end, int) {
    if (!c.out[2])
      return linear::kernels().code_words(x.f32(), x.s[2], begin, end, x.n[3], static_cast<int16_t*>(c.out[0].data),
                                          c.out[1].f32(), c.out[0].s[2]);
    linear::kernels().quantise_rows(x.f32(), x.s[2], begin, end, x.n[3], static_cast<int8_t*>(c.out[0].data),
                                    c.out[1].f32(), static_cast<int16_t*>(c.out[2].data), c.out[0].s[2]);
  });
}

// Several products of one input. in: x as codes, scales, sums, as 16-bit codes, scales, – or as values, –, –; then a bias
// [O] or – a part. out: [N, O] a part. objects: a Matrix a part. i: the source, then the first input column of each part;
// f: a scale a part.
void linears(const Call& c, Pool& pool) {
  if (pool.threads() > 1) announce(c.next, pool);
  const Cut cut(c, pool.threads());
  const auto run = [&](int part, int64_t begin, int64_t end, int64_t first, int64_t last, int thread) {
    const auto& m = c.object<linear::Matrix>(part);
    const Tensor &y = c.out[part], &bias = c.in[3 + part];
    float* out = y.f32() + begin * y.s[2];
    linear::kernels().multiply(m, first, last, activations(c.in, c.i[0], begin * c.in[0].s[2] + c.i[1 + part]), nullptr,
                               end - begin, out, y.s[2], nullptr, pool.scratch(thread));
    finish(out, y.s[2], nullptr, end - begin, first * linear::kPanel, least(last * linear::kPanel, m.rows), c.f[part],
           bias ? bias.f32() : nullptr);
  };
  if (cut.items == 0) {
    for (int p = 0; p < c.n_objects; ++p) run(p, 0, cut.tokens, 0, linear::panels(c.object<linear::Matrix>(p).rows), 0);
    return;
  }
  const auto some = [&](int64_t item, int64_t end, int thread) {
    while (item < end) {  // part by part of a block
      const int64_t block = item / cut.chunks, from = item % cut.chunks;
      int64_t chunk = from;
      const int part = cut.part(c, chunk);
      const int64_t last = least(chunk + least(end - item, cut.chunks - from), cut.pieces(c, part));
      run(part, cut.first_token(block), cut.first_token(block + 1), chunk * cut.each,
          least(last * cut.each, linear::panels(c.object<linear::Matrix>(part).rows)), thread);
      item += last - chunk;
    }
  };
  if (cut.tokens <= kFewTokens) return pool.ranges(cut.items, some);
  pool.each(cut.items, [&](int64_t item, int thread) { some(item, item + 1, thread); });
}

// Sorts (token, place) pairs by expert, stably. in: ids [T, k]; out: offsets [E+1], pairs [T·k] (t·k + place; those of
// no expert last), tokens [T·k], active [E+1]: the number of experts with pairs, then their ids. i: E, k.
void group(const Call& c, Pool&) {
  const Tensor& ids = c.in[0];
  const int64_t experts = c.i[0], k = c.i[1], n = c.out[1].n[3];
  int32_t *offsets = c.out[0].i32(), *pairs = c.out[1].i32(), *tokens = c.out[2].i32(), *active = c.out[3].i32();
  const auto expert = [&](int64_t pair) -> int64_t {
    const int32_t e = ids.i32()[pair / k * ids.s[2] + pair % k];
    return e < 0 || e >= experts ? experts : e;
  };
  for (int64_t e = 0; e <= experts; ++e) offsets[e] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t e = expert(i);
    if (e + 1 <= experts) ++offsets[e + 1];
  }
  active[0] = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (offsets[e + 1]) active[++active[0]] = static_cast<int32_t>(e);
    offsets[e + 1] += offsets[e];
  }
  int32_t none = offsets[experts];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t e = expert(i);
    const int32_t at = e == experts ? none++ : offsets[e]++;
    pairs[at] = static_cast<int32_t>(i);
    tokens[at] = static_cast<int32_t>(i / k);
  }
  for (int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];  // the counting moved each to its end
  offsets[0] = 0;
}

// in: x as in `linears`; offsets, pairs, tokens, active of `group`; then bias [E, O] or –, scale [E] or [1] or – a part.
// out: [T·k, O] a part. objects: Experts a part. i: the source, 1 if x has a row a pair (else a token).
void expert_linears(const Call& c, Pool& pool) {
  const int32_t *offsets = c.in[3].i32(), *pairs = c.in[4].i32(), *tokens = c.in[5].i32(), *active = c.in[6].i32();
  const int32_t* x_rows = c.i[1] ? pairs : tokens;
  const int64_t n = c.in[4].n[3], parts = c.n_objects, used = active[0], experts = c.object<Experts>(0).count;
  double total = 0;
  int64_t widest = 1;
  for (int p = 0; p < parts; ++p) {
    const auto& e = c.object<Experts>(p);
    const int64_t panels = linear::panels(e.rows);
    widest = panels > widest ? panels : widest;
    total += cost(e.type, e.columns, panels, 0) * static_cast<double>(used) + cost(e.type, e.columns, panels, n) -
             cost(e.type, e.columns, panels, 0);
    for (int64_t i = offsets[experts]; i < n; ++i)
      for (int64_t j = 0; j < e.rows; ++j) c.out[p].f32()[pairs[i] * c.out[p].s[2] + j] = 0.0f;
  }
  const auto run = [&](int p, int64_t e, int64_t first, int64_t last, int thread) {
    const auto& all = c.object<Experts>(p);
    const Tensor &y = c.out[p], &bias = c.in[7 + 2 * p], &scale = c.in[8 + 2 * p];
    const int64_t begin = offsets[e], count = offsets[e + 1] - begin;
    linear::kernels().multiply(all.at(e), first, last, activations(c.in, c.i[0], 0), x_rows + begin, count, y.f32(), y.s[2],
                               pairs + begin, pool.scratch(thread));
    finish(y.f32(), y.s[2], pairs + begin, count, first * linear::kPanel, least(last * linear::kPanel, all.rows),
           scale ? scale.f32()[e * scale.s[3]] : 1.0f, bias ? bias.f32() + e * bias.s[2] : nullptr);
  };
  if (used == 0) return;
  int64_t pieces = total < kWorthWaking || pool.threads() == 1 ? 1 : (pool.threads() * 12 + used * parts - 1) / (used * parts);
  if (pieces > (widest + 1) / 2) pieces = (widest + 1) / 2;
  const auto item = [&](int64_t i, int thread) {
    const int64_t piece = i % pieces, e = active[1 + i / pieces % used];
    const int p = static_cast<int>(i / pieces / used);
    const int64_t panels = linear::panels(c.object<Experts>(p).rows);
    int64_t each = (panels + pieces - 1) / pieces;
    each += each & 1;
    if (piece * each < panels) run(p, e, piece * each, least(piece * each + each, panels), thread);
  };
  if (total < kWorthWaking) {
    for (int64_t i = 0; i < parts * used; ++i) item(i, 0);
    return;
  }
  pool.each(parts * used * pieces, item);
}

}  // namespace mill::TM_ISA
