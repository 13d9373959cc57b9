// The table of one instruction set: finds a type's kernels, and quantises activations.
#include "linear/call.h"
#include "simd/each.h"

namespace mill::TM_ISA {
namespace linear {

// Each table ends with a row without a pack function.
extern const FormatKernels kLegacy[], kK[], kSmall[], kCodebook[], kWords[], kFloats[];
void code_words(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end, int64_t columns, int16_t* words,
                float* scales, int64_t stride);

namespace {

const FormatKernels* find(Type type) {
  for (const FormatKernels* table : {kLegacy, kK, kSmall, kCodebook, kWords, kFloats})
    for (; table->pack != nullptr; ++table)
      if (table->type == type) return table;
  return nullptr;
}

bool describe(Type type, Description* out) {
  const FormatKernels* f = find(type);
  if (f == nullptr) return false;
  const Geometry& g = f->geometry;
  *out = {f->codes, f->words, g.file_inputs, g.file_bytes, g.inputs, g.bytes, g.front};
  return true;
}

void pack_panel(Type type, const uint8_t* const rows[16], int64_t columns, uint8_t* panel) {
  find(type)->pack(rows, columns, panel);
}

void multiply(const Matrix& m, int64_t begin, int64_t end, const Activations& x, const int32_t* x_rows,
              int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void* scratch) {
  find(m.type)->multiply(m, begin, end, x, x_rows, n_tokens, out, out_stride, out_rows, scratch);
}

void decode_rows(const Matrix& m, const int32_t* ids, int64_t n, float* out, int64_t out_stride) {
  const FormatKernels* f = find(m.type);
  const int64_t bytes = panel_size(f->geometry, m.columns);
  for (int64_t i = 0; i < n; ++i)
    f->decode_row(m.data + ids[i] / kPanel * bytes, static_cast<int>(ids[i] % kPanel), m.columns, out + i * out_stride);
}

// n <= 16 groups of 32 inputs, together since what costs most are sums over lanes and divisions. Of each group: u = x *
// (127 / max |x|), code q = u rounded, halves to even. The scale is the one with the least squared error for these codes,
// max |x| / 127 * (sum u q / sum q q): 3 % less error than max |x| / 127 alone. The largest is found on the bits, where a
// NaN is largest of all: it reaches the scale and hence every output. Groups below 1e-30 are zero. The sum of q q is
// exact; that of u q is u[i] q[i] + u[i + 16] q[i + 16] by fma, then the tree of `total`.
void quantise_groups(const float* x, int n, int8_t* codes, float* scales, int16_t* sums) {
  const Ints absolute = broadcast(static_cast<int32_t>(0x7fffffff));
  Ints most[16];
  Floats along[16], square[16];
  for (int i = 0; i < 16; ++i) {
    most[i] = i < n ? max(bit_and(bits(load_floats(x + 32 * i)), absolute), bit_and(bits(load_floats(x + 32 * i + 16)), absolute))
                    : broadcast(0);
    along[i] = square[i] = zero_floats();
  }
  alignas(64) float largest_value[16], inverse[16], up[16], down[16];
  store(largest_value, from_bits(largest_each(most)));
  for (int i = 0; i < 16; ++i) inverse[i] = largest_value[i] < 1e-30f ? 0.0f : 127.0f / largest_value[i];
  for (int i = 0; i < n; ++i) {
    const Floats ua = mul(load_floats(x + 32 * i), broadcast(inverse[i]));
    const Floats ub = mul(load_floats(x + 32 * i + 16), broadcast(inverse[i]));
    const Ints qa = round_even(ua), qb = round_even(ub);
    const Floats fa = to_floats(qa), fb = to_floats(qb);
    along[i] = fma(ub, fb, mul(ua, fa));
    square[i] = fma(fb, fb, mul(fa, fa));
    store_s8(codes + 32 * i, qa);
    store_s8(codes + 32 * i + 16, qb);
  }
  store(up, total_each(along));
  store(down, total_each(square));
  for (int i = 0; i < n; ++i)
    scales[i] = largest_value[i] < 1e-30f ? 0.0f : largest_value[i] / 127.0f * (up[i] / down[i]);
  int i = 0;
  for (; i + 16 <= 2 * n; i += 16) store_s16(sums + i, sums_of_sixteens(codes + 16 * i));
  for (; i < 2 * n; ++i) sums[i] = static_cast<int16_t>(total(load_s8_ints(codes + 16 * i)));
}

void quantise_rows(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end, int64_t columns,
                   int8_t* codes, float* scales, int16_t* sums, int64_t stride) {
  for (int64_t r = row_begin; r < row_end; ++r) {
    const float* from = x + r * x_stride;
    const int64_t to = r * stride;
    for (int64_t k = 0; k < columns; k += 512)
      quantise_groups(from + k, static_cast<int>(columns - k < 512 ? (columns - k) / 32 : 16), codes + to + k,
                      scales + (to + k) / 32, sums + (to + k) / 16);
  }
}

}  // namespace
}  // namespace linear

extern const mill::linear::Kernels linear_kernels = {
    linear::describe, linear::pack_panel, linear::multiply, linear::quantise_rows, linear::code_words, linear::decode_rows,
};

}  // namespace mill::TM_ISA
