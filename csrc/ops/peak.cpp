// The fastest loops of this instruction set: reading, and the inner step of a GEMM without anything around it.
#include "runtime/limits.h"
#include "simd/simd.h"

namespace mill::TM_ISA {
namespace {

constexpr int kSteps = 32;  // of a round: operands stay in the first-level cache
// In a loop gcc 12 copies twelve accumulators at each step; four it keeps, and is slower without one.
constexpr int kUnrolled = kTileTokens > 4 ? kSteps : 1;

// Four streams keep more lines in flight than one; the sums are free beside the loads.
int64_t read(const std::byte* from, int64_t bytes) {
  const int64_t quarter = bytes / 256 * 64;
  Ints sum[4];
  for (Ints& s : sum) s = broadcast(0);
  for (int64_t i = 0; i < quarter; i += 64)
    for (int k = 0; k < 4; ++k) sum[k] = add(sum[k], load_ints(from + k * quarter + i));
  return total(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

// Adds all accumulators and keeps the sum, or the loop would be dropped.
template <class V> TM_INLINE void use(const V (&acc)[kTileTokens][kTilePanels]) {
  V all = acc[0][0];
  for (int t = 0; t < kTileTokens; ++t)
    for (int p = 0; p < kTilePanels; ++p) all = add(all, acc[t][p]);
  asm volatile("" : : "m"(all));
}

// `multiply(acc, 64 bytes of weights as `load` gives them, where 4 of activations are)` in the shape of a GEMM; `each`: its
// products.
// The operands' memory is given to an asm in each round: they may have changed, so nothing is hoisted out of it.
template <class L, class F> TM_INLINE double whole(int64_t rounds, double each, const L& load, const F& multiply) {
  alignas(64) std::byte codes[kSteps][kTilePanels][64] = {};
  alignas(64) int8_t x[kSteps][kTileTokens][4] = {};
  Ints acc[kTileTokens][kTilePanels];
  for (int t = 0; t < kTileTokens; ++t)
    for (int p = 0; p < kTilePanels; ++p) acc[t][p] = broadcast(0);
  for (int64_t n = 0; n < rounds; ++n) {
    asm volatile("" : "+m"(codes), "+m"(x));
#pragma GCC unroll kUnrolled
    for (int s = 0; s < kSteps; ++s) {
      decltype(load(codes[s][0])) w[kTilePanels];
      for (int p = 0; p < kTilePanels; ++p) w[p] = load(codes[s][p]);
      for (int t = 0; t < kTileTokens; ++t)
        for (int p = 0; p < kTilePanels; ++p) acc[t][p] = multiply(acc[t][p], w[p], x[s][t]);
    }
  }
  use(acc);
  return 2.0 * each * kSteps * kTilePanels * kTileTokens * static_cast<double>(rounds);
}

double dot(int64_t rounds) {
  const auto multiply = [](Ints acc, Bytes w, const int8_t* a) TM_LAMBDA { return dot_at<false>(acc, w, a); };
  return whole(rounds, 64, [](const std::byte* p) TM_LAMBDA { return load_bytes(p); }, multiply);
}

double pairs(int64_t rounds) {
  const auto multiply = [](Ints acc, Ints w, const int8_t* a) TM_LAMBDA { return dot_words(acc, w, load_i32(a)); };
  return whole(rounds, 32, [](const std::byte* p) TM_LAMBDA { return load_ints(p); }, multiply);
}

double fma(int64_t rounds) {
  alignas(64) float values[kSteps][kTilePanels][16] = {};
  alignas(64) float x[kSteps][kTileTokens] = {};
  Floats acc[kTileTokens][kTilePanels];
  for (int t = 0; t < kTileTokens; ++t)
    for (int p = 0; p < kTilePanels; ++p) acc[t][p] = zero_floats();
  for (int64_t n = 0; n < rounds; ++n) {
    asm volatile("" : "+m"(values), "+m"(x));
    for (int s = 0; s < kSteps; ++s) {
      Floats w[kTilePanels];
      for (int p = 0; p < kTilePanels; ++p) w[p] = load_floats(values[s][p]);
      for (int t = 0; t < kTileTokens; ++t)
        for (int p = 0; p < kTilePanels; ++p) acc[t][p] = fma(w[p], broadcast(x[s][t]), acc[t][p]);
    }
  }
  use(acc);
  return 2.0 * 16 * kSteps * kTilePanels * kTileTokens * static_cast<double>(rounds);
}

}  // namespace

extern const PeakTable peaks;
const PeakTable peaks = {read, dot, pairs, fma};

}  // namespace mill::TM_ISA
