// Kernels of the 16-bit codes: register blocks of panels x tokens, straight from the packed lines, whatever T is.
#include "linear/formats/words.h"

#include "linear/call.h"

namespace mill::TM_ISA::linear {
namespace {

inline constexpr int kTokens = kTilePanels > 1 ? 8 : 4;  // of a register block
inline constexpr int kStreams = 4;  // panels that one token reads together: 7 % faster from memory than one by one
inline constexpr int64_t kFewTokens = 4 * kTokens;  // up to here a product waits for memory: all of them fetch ahead
inline constexpr int64_t kFewBlocks = 4;    // of 64 inputs at a time, then: two panels of them, and the next, are 32 KB
inline constexpr int64_t kManyBlocks = 8;   // else, all panels by these inputs before the next: tokens stay in the L2
inline constexpr int64_t kPrefetch = 2048;  // bytes ahead, where one block of tokens is all

struct Block {  // panels at some input, and tokens
  const uint8_t* scales[kStreams];
  const uint8_t* lines[kStreams];
  const uint8_t* ahead[kStreams];  // what to fetch meanwhile, `fetch` lines for each 8
  int fetch;
  const int16_t* codes[kTokens];
  const float* token_scales[kTokens];
  float* out[kTokens];
};

// n times 64 inputs; the first `count` of NT tokens are stored. Few tokens: several chains each, or dots wait for dots.
template <int P, int NT, bool ahead>
void multiply_block(const Block& x, int64_t n, int count, bool first, int valid) {
  constexpr int chains = P * NT <= 2 ? 2 : 1;
  Floats f[NT][P];
  for (int t = 0; t < NT; ++t)
    for (int p = 0; p < P; ++p) {
      const float* at = x.out[t] + 16 * p;
      f[t][p] = first ? zero_floats() : p + 1 < P || valid == 16 ? load_floats(at) : load_first(at, valid);
    }
  for (int64_t b = 0; b < n; ++b) {
    Ints acc[chains][NT][P];
    for (int c = 0; c < chains; ++c)
      for (int t = 0; t < NT; ++t)
        for (int p = 0; p < P; ++p) acc[c][t][p] = broadcast(0);
    for (int64_t line = b * kWordInputs / 2; line < (b + 1) * kWordInputs / 2; line += 8)
      unroll<8>([&](auto i) TM_LAMBDA {
        Ints w[P];
        for (int p = 0; p < P; ++p) {
          w[p] = load_ints(x.lines[p] + 64 * (line + i));
          if constexpr (ahead)
            if (i < x.fetch) prefetch(x.ahead[p] + 64 * (line / 8 * x.fetch + i));
        }
        for (int t = 0; t < NT; ++t) {
          const int32_t pair = load_i32(x.codes[t] + 2 * (line + i));
          for (int p = 0; p < P; ++p) acc[i % chains][t][p] = dot_words(acc[i % chains][t][p], w[p], pair);
        }
      });
    for (int p = 0; p < P; ++p) {
      const Floats scale = load_bf16(x.scales[p] + b * kWordGeometry.front);
      for (int t = 0; t < NT; ++t) {
        Ints sum = acc[0][t][p];
        for (int c = 1; c < chains; ++c) sum = add(sum, acc[c][t][p]);
        f[t][p] = fma(to_floats(sum), mul(scale, broadcast(x.token_scales[t][b])), f[t][p]);
      }
    }
  }
  for (int t = 0; t < NT; ++t)
    for (int p = 0; p < P; ++p) {
      float* at = x.out[t] + 16 * p;
      if (t < count) p + 1 < P || valid == 16 ? store(at, f[t][p]) : store_first(at, f[t][p], valid);
    }
}

// Five and seven tokens are done as six and eight.
template <int P, bool ahead, int NT = kTokens>
void block_of(const Block& x, int64_t n, int count, bool first, int valid) {
  constexpr int fewer = NT > 4 ? NT - 2 : NT - 1;
  if constexpr (NT > 1) {
    if (count <= fewer) return block_of<P, ahead, fewer>(x, n, count, first, valid);
  }
  multiply_block<P, NT, ahead>(x, n, count, first, valid);
}

// Blocks [b, b + n) of P panels, all tokens, up to `most` together.
template <int P, int most = kTokens> void panels(const Matrix& m, int64_t panel, int64_t b, int64_t n, const Call& call) {
  const int64_t bytes = panel_size(kWordGeometry, m.columns), front = front_bytes(kWordGeometry, m.columns);
  const int64_t tiles = ceil_div(call.n_tokens, kTokens), tile = ceil_div(call.n_tokens, tiles);
  const int valid = valid_rows(m, panel + P - 1);
  const bool few = call.n_tokens <= kFewTokens;
  Block x;
  for (int p = 0; p < P; ++p) {
    x.scales[p] = m.data + (panel + p) * bytes + b * kWordGeometry.front;
    x.lines[p] = m.data + (panel + p) * bytes + front + b * kWordGeometry.bytes;
    x.ahead[p] = x.lines[p] + (few && tiles > 1 ? n * kWordGeometry.bytes : kPrefetch);
  }
  x.fetch = static_cast<int>(few ? ceil_div(8, tiles) : 8);
  for (int64_t t0 = 0; t0 < call.n_tokens; t0 += tile) {
    const int count = static_cast<int>(call.n_tokens - t0 < tile ? call.n_tokens - t0 : tile);
    for (int t = 0; t < kTokens; ++t) {
      const int64_t i = t0 + (t < count ? t : count - 1), at = call.x_at(i) + kWordInputs * b;
      x.codes[t] = call.x.words + at;
      x.token_scales[t] = call.x.scales + at / kWordInputs;
      x.out[t] = call.row(i) + panel * kPanel;
    }
    if (few || t0 == 0) block_of<P, true, most>(x, n, count, b == 0, valid);
    else block_of<P, false, most>(x, n, count, b == 0, valid);
    for (int p = 0; p < P; ++p) x.ahead[p] += 4 * 64 * x.fetch * n;
  }
}

void multiply(const Matrix& m, int64_t begin, int64_t end, const Activations& x, const int32_t* x_rows,
              int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void*) {
  if (n_tokens == 0) return;
  const Call call{x, x_rows, n_tokens, out, out_stride, out_rows};
  const bool few = n_tokens <= kFewTokens;
  const int64_t blocks = ceil_div(m.columns, kWordInputs);
  const int64_t chunk = n_tokens <= kTokens ? blocks : few ? kFewBlocks : kManyBlocks;
  // Panels that are done before the next inputs.
  const int64_t width = n_tokens == 1 ? kStreams : few ? kTilePanels : end - begin;
  for (int64_t first = begin; first < end; first += width) {
    const int64_t last = end - first < width ? end : first + width;
    for (int64_t b = 0; b < blocks; b += chunk) {
      const int64_t n = blocks - b < chunk ? blocks - b : chunk;
      int64_t p = first;
      if (n_tokens == 1)
        for (; p + kStreams <= last; p += kStreams) panels<kStreams, 1>(m, p, b, n, call);
      for (; p + kTilePanels <= last; p += kTilePanels) panels<kTilePanels>(m, p, b, n, call);
      for (; p < last; ++p) panels<1>(m, p, b, n, call);
    }
  }
}

template <class F> constexpr FormatKernels words(Type type) {
  return {type, false, kWordGeometry, pack_words<F>, multiply, decode_word_row, true};
}

}  // namespace

extern const FormatKernels kWords[] = {words<F16>(Type::F16), words<BF16>(Type::BF16), {}};

void code_words(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end, int64_t columns, int16_t* words,
                float* scales, int64_t stride) {
  for (int64_t r = row_begin; r < row_end; ++r)
    for (int64_t k = 0; k < columns; k += kWordInputs) {
      const int64_t at = r * stride + k;
      Floats v[kVectors];
      load_padded(x + r * x_stride + k, columns - k, v);
      scales[at / kWordInputs] = word_scale(v);
      word_codes(v, scales[at / kWordInputs], words + at);
    }
}

}  // namespace mill::TM_ISA::linear
