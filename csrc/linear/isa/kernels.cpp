// The table of one instruction set: finds a type's kernels, and quantises activations.
#include "linear/call.h"

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

// 32 inputs: u = x * (127 / max |x|), code q = u rounded, halves to even. The scale is the one with the least squared
// error for these codes, max |x| / 127 * (sum u q / sum q q): 3 % less error than max |x| / 127 alone. The largest is
// found on the bits, where a NaN is largest of all: it reaches the scale and hence every output. Blocks below 1e-30 are
// zero. The sum of q q is exact; that of u q is u[i] q[i] + u[i + 16] q[i + 16] by fma, then the tree of `total`.
TM_INLINE void quantise_group(const float* x, int8_t* codes, float* scale, int16_t* sums) {
  const Floats a = load_floats(x), b = load_floats(x + 16);
  const Ints absolute = broadcast(static_cast<int32_t>(0x7fffffff));
  const float largest_value =
      __builtin_bit_cast(float, largest(max(bit_and(bits(a), absolute), bit_and(bits(b), absolute))));
  const bool tiny = largest_value < 1e-30f;
  const float inverse = tiny ? 0.0f : 127.0f / largest_value;
  const Floats ua = mul(a, broadcast(inverse)), ub = mul(b, broadcast(inverse));
  const Ints qa = round_even(ua), qb = round_even(ub);
  const Floats fa = to_floats(qa), fb = to_floats(qb);
  const float along = total(fma(ub, fb, mul(ua, fa))), square = total(fma(fb, fb, mul(fa, fa)));
  *scale = tiny ? 0.0f : largest_value / 127.0f * (along / square);
  store_s8(codes, qa);
  store_s8(codes + 16, qb);
  sums[0] = static_cast<int16_t>(total(qa));
  sums[1] = static_cast<int16_t>(total(qb));
}

void quantise_rows(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end, int64_t columns,
                   int8_t* codes, float* scales, int16_t* sums, int64_t stride) {
  for (int64_t r = row_begin; r < row_end; ++r) {
    const float* from = x + r * x_stride;
    const int64_t to = r * stride;
    for (int64_t k = 0; k < columns; k += 32)
      quantise_group(from + k, codes + to + k, scales + (to + k) / 32, sums + (to + k) / 16);
  }
}

}  // namespace
}  // namespace linear

extern const mill::linear::Kernels linear_kernels = {
    linear::describe, linear::pack_panel, linear::multiply, linear::quantise_rows, linear::code_words, linear::decode_rows,
};

}  // namespace mill::TM_ISA
