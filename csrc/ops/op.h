// What every op kernel sees: its operands resolved for this step, its attributes, the step and the team of threads.
//
// A kernel is one function `void(const Call&, Pool&)` that runs on the calling thread and opens parallel regions itself
// where the work is worth a wake. Kernels never allocate, throw or depend on the number of threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/pool.h"

namespace mill {

// A strided array of up to four axes, aligned at the last; missing axes are 1 long. Strides count elements.
struct Tensor {
  void* data = nullptr;
  int64_t n[4] = {1, 1, 1, 1};
  int64_t s[4] = {0, 0, 0, 0};

  float* f32() const { return static_cast<float*>(data); }
  int32_t* i32() const { return static_cast<int32_t*>(data); }
  int64_t rows() const { return n[0] * n[1] * n[2]; }
  explicit operator bool() const { return data != nullptr; }

  // Elements before row r of the last axis, rows counted over the leading axes.
  int64_t row_offset(int64_t r) const {
    const int64_t k = r % n[2], rest = r / n[2];
    return (rest / n[1]) * s[0] + (rest % n[1]) * s[1] + k * s[2];
  }
};

// Rows of past tokens in pages (OPS §2). Rows go in blocks of up to 64; a page has `blocks` of them for each KV head.
// With values stored, keys of a block lie side by side, so that scores of 16 keys are one fma; without (latent caches,
// where keys serve as values) only row-major keys are stored.
//
//   page | head 0: block 0 [K][lanes] keys, [rows][v_stride] values | block 1 … | head 1: …
//   page | head 0: block 0 [rows][k_stride] keys | …
//
// Keys and values of f16, q8_0 and q4_0 are drawn in `stored.h`; rows of latent caches in blocks are those of the file format,
// and their stride counts bytes. `type` is the ggml id.
struct PagedCache {
  std::byte* data = nullptr;
  int64_t page_bytes = 0, head_bytes = 0, block_bytes = 0, v_offset = 0;
  int32_t pages = 0, heads = 0, k = 0, v = 0;                // v: 0 if keys serve as values
  int32_t rows = 0, blocks = 0, lanes = 0, k_stride = 0, v_stride = 0;  // rows a block, blocks a page, padded widths
  int32_t ratio = 1, window = 0, style = 0, type = 0;        // style: see Style
  int32_t table = 0;                                         // index of its page table in the step

  std::byte* block(int64_t page, int64_t head, int64_t b) const {
    return data + page * page_bytes + head * head_bytes + b * block_bytes;
  }
};

enum Style : int32_t { kSlide = 0, kChunk = 1, kCentred = 2 };

// Rings and states in slots (OPS §2): `slot_floats` numbers a slot.
struct SlotCache {
  float* data = nullptr;
  int64_t slot_floats = 0;
  int32_t slots = 0, rows = 0, width = 0;  // ring: rows of `width`
  int64_t state = 0;                       // state: floats before the ring of inputs
};

struct StepView {
  int64_t T = 0, S = 0;
  const int32_t *index = nullptr, *until = nullptr, *seq_start = nullptr, *past = nullptr, *sure = nullptr;
  const int32_t *slot = nullptr, *base = nullptr;
  std::vector<const int32_t*> tables;   // one for each lifetime, [S, columns]
  std::vector<int64_t> table_columns;
};

struct Call {
  const Tensor* in = nullptr;
  const Tensor* out = nullptr;
  const int64_t* i = nullptr;   // integer attributes, in the order of the kernel's comment
  const float* f = nullptr;     // float attributes
  const void* const* objects = nullptr;  // caches and packed weights
  int n_in = 0, n_out = 0, n_i = 0, n_f = 0, n_objects = 0;
  const StepView* step = nullptr;
  const Call* next = nullptr;  // of a product: the next one of the program

  template <class T>
  const T& object(int k) const {
    return *static_cast<const T*>(objects[k]);
  }
};

using Kernel = void (*)(const Call&, Pool&);

struct KernelEntry {
  std::string_view name;
  Kernel run;
};

// Kernels of one instruction set, in no order.
struct KernelTable {
  const KernelEntry* entries;
  int count;
  int64_t (*attention_scratch)(int64_t group, int64_t width, int64_t values);  // bytes a thread
};

// Work below this many nanoseconds (guessed) is not worth waking another thread for.
constexpr double kWorthWaking = 4000.0;

// Runs f(begin, end, thread) over 0…n in chunks of whole `grain`s; inline if `ns_each · n` is small.
template <class F>
void split(Pool& pool, int64_t n, double ns_each, const F& f, int64_t grain = 1) {
  if (n <= 0) return;
  const double total = ns_each * static_cast<double>(n);
  if (pool.threads() == 1 || total < kWorthWaking || n <= grain) return f(int64_t{0}, n, 0);
  const double pieces = total / (kWorthWaking / 2);
  const int64_t most = pool.threads() * 8;
  int64_t chunks = pieces < static_cast<double>(most) ? static_cast<int64_t>(pieces) : most;
  const int64_t grains = (n + grain - 1) / grain;
  if (chunks > grains) chunks = grains;
  const int64_t each = (grains + chunks - 1) / chunks * grain;
  pool.each((n + each - 1) / each, [&](int64_t item, int thread) {
    const int64_t begin = item * each;
    f(begin, begin + each < n ? begin + each : n, thread);
  });
}

}  // namespace mill
