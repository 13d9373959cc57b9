// Matrix products with packed weights: the doors. out[t, n] = sum over k of x[t, k] W[n, k].
//
// One arithmetic for each weight type, whatever the number of tokens, the cut into panels or the instruction set:
//   quantised types  x is int8 codes with a float32 scale da for each 32 inputs; a weight is code * s [- m] with one s
//                    (and m) for each group of 32 or 16 inputs. Groups ascending from f = 0:
//                      f = fma(float(isum) * s, da, f)               isum = sum of codes x codes, exact
//                      f = fma(-m, float(asum) * da, f)              asum = sum of x's codes, types with mins only
//   K, IQ, TQ types  a weight is (code * s) * d [- m * dmin], s and m whole numbers, d for a block of 256 inputs. Blocks
//                    ascending from f = 0, groups as above:
//                      h = fma(float(isum) * s, da, h) from h = 0, then f = fma(h, d, f)
//                      l = fma(m, float(asum) * da, l) from l = 0, then f = fma(-l, dmin, f)
//                    Q2_K, Q3_K, IQ1_M: float(isum) * s is the (exact) sum over both groups of 32 inputs.
//   F16 BF16         x and weights are int16 codes with a scale for each 64 inputs: float32 of x, bf16 of weights. A
//                    scale is max(length / 46000, max |x| / 32767), length being the root of the sum of squares; so
//                    isum is below 2^31, and the error of a code is that of 12 or 13 bits of mantissa. Ascending from 0:
//                      f = fma(float(isum), scale * da, f)           isum exact
//   F32              x is float32. For each 32 inputs: even = fma chain over inputs 0, 2, ..., odd = 1, 3, ..., both
//                    from 0; f = f + (even + odd).
// Weights lie in panels of 16 output rows (layouts are drawn in formats/*.h). Any thread may do any range of panels.
#pragma once
#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace mill::linear {

inline constexpr int64_t kMaxColumns = 262144;         // of a quantised matrix
inline constexpr int64_t kPanel = 16;                  // output rows of a panel
inline constexpr int64_t kWordInputs = 64;             // inputs that share a scale of 16-bit codes
inline constexpr size_t kScratchBytes = 320 * 1024;    // one per thread, 64-byte aligned, contents undefined

enum class Type : int32_t {  // ggml's ids
  F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13,
  Q6_K = 14, IQ2_XXS = 16, IQ2_XS = 17, IQ3_XXS = 18, IQ1_S = 19, IQ4_NL = 20, IQ3_S = 21, IQ2_S = 22, IQ4_XS = 23,
  IQ1_M = 29, BF16 = 30, TQ1_0 = 34, TQ2_0 = 35, MXFP4 = 39, NVFP4 = 40, Q1_0 = 41, Q2_0 = 42,
};

struct Matrix {          // packed weights of one [rows, columns] matrix (one expert is one matrix)
  Type type;
  int64_t rows, columns;
  const uint8_t* data;   // panels(rows) * panel_bytes(type, columns) bytes, 64-byte aligned
};

// Rows of activations. Quantised types read codes, scales and sums; F16 and BF16 words and scales; F32 values. Row r
// starts at codes + r * stride, scales + r * stride / 32 (of words: / 64), sums + r * stride / 16, values + r * stride.
// A block-diagonal product passes pointers offset by its first input (a multiple of 32 for codes, of 64 for words).
struct Activations {
  const float* values;
  const int8_t* codes;   // -127..127
  const float* scales;   // one for each 32 inputs, near max |x| / 127
  const int16_t* sums;   // of the codes of each 16 inputs
  int64_t stride;        // inputs from row to row; a multiple of 32 where codes are used, of 64 where words are
  const int16_t* words = nullptr;  // -32767..32767, zeros up to a multiple of 64
};

struct Description {  // of a type: whether it takes codes or words, a block in the file, a packed block of 16 rows
  bool codes, words;
  int file_inputs, file_bytes, inputs, bytes, front;
};

struct Kernels {
  bool (*describe)(Type, Description*);  // false: no kernels for this type
  // 16 rows of the file's blocks -> one panel. A row of zero bytes decodes to zeros in every type.
  void (*pack_panel)(Type, const uint8_t* const rows[16], int64_t columns, uint8_t* panel);
  // Panels [panel_begin, panel_end) for tokens i < n_tokens: reads row x_rows[i] of x (null: i), overwrites row
  // out_rows[i] of out (null: i). Columns of out beyond `rows` are not touched.
  void (*multiply)(const Matrix&, int64_t panel_begin, int64_t panel_end, const Activations& x, const int32_t* x_rows,
                   int64_t n_tokens, float* out, int64_t out_stride, const int32_t* out_rows, void* scratch);
  // x[row, columns] float32 -> codes, scales, sums, for rows [row_begin, row_end). columns % 32 == 0.
  void (*quantise_rows)(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end, int64_t columns,
                        int8_t* codes, float* scales, int16_t* sums, int64_t stride);
  // x[row, columns] float32 -> words and scales, with zeros up to a multiple of 64 inputs.
  void (*code_words)(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end, int64_t columns,
                     int16_t* words, float* scales, int64_t stride);
  // out[i, :] = row ids[i] of the matrix as float32 (embedding lookups), exactly as ggml decodes it; F16 and BF16 to
  // half a code.
  void (*decode_rows)(const Matrix&, const int32_t* ids, int64_t n, float* out, int64_t out_stride);
};

const Kernels& kernels();  // of the chosen instruction set (isa.h)

bool supported(Type);
bool takes_codes(Type);                            // int8 activations
bool takes_words(Type);                            // int16 activations (F16, BF16); neither: float32 (F32)
int64_t block_of(Type);                            // columns must be a multiple of this
int64_t row_bytes(Type, int64_t columns);          // in the file
int64_t panel_bytes(Type, int64_t columns);        // packed
int64_t packed_panel_bytes(const Description&, int64_t columns);
inline int64_t panels(int64_t rows) { return (rows + kPanel - 1) / kPanel; }
inline int64_t packed_bytes(Type t, int64_t rows, int64_t columns) {
  return panels(rows) * panel_bytes(t, columns);
}

// All panels of a matrix whose rows lie one after another (rows [row 16 * panel_begin, ...) of `source`).
void pack(Type, const uint8_t* source, int64_t rows, int64_t columns, int64_t panel_begin, int64_t panel_end,
          uint8_t* packed);

// Codebooks of the IQ types ([entries][width] signed bytes; IQ1's times 8), handed over once at load, before any
// other call with the type; the functions above throw std::runtime_error for a type whose codebook is missing.
void set_codebook(Type, const int8_t* values, int64_t entries, int64_t width);
extern const int8_t* codebooks[64];                // by type; IQ1_M reads that of IQ1_S

}  // namespace mill::linear
