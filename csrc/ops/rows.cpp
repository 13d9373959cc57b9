// embed, gather_rows, put_rows, concat, pool, top_k: rows moved, looked up or reduced.
#include <cmath>
#include <cstring>

#include "linear/linear.h"
#include "ops/kernels.h"
#include "ops/loops.h"
#include "ops/vmath.h"

namespace mill::TM_ISA {
namespace {

TM_INLINE void copy_row(void* to, const void* from, int64_t words) {
  std::memcpy(to, from, static_cast<size_t>(words) * 4);
}

}  // namespace

// in: ids [N]; out: [N, D]; object: Matrix. An id outside the matrix (−1) gives zeros.
void embed(const Call& c, Pool& pool) {
  const auto& matrix = c.object<linear::Matrix>(0);
  const Tensor &ids = c.in[0], &y = c.out[0];
  split(pool, y.n[2], 2.0 * static_cast<double>(y.n[3]), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t id = ids.i32()[r];
      float* row = y.f32() + r * y.s[2];
      if (id < 0 || id >= matrix.rows)
        std::memset(row, 0, static_cast<size_t>(y.n[3]) * 4);
      else
        linear::kernels().decode_rows(matrix, &id, 1, row, y.s[2]);
    }
  });
}

// As embed from a plain table of 4-byte numbers: in: ids [N], table [V, D]; out [N, D].
void embed_table(const Call& c, Pool&) {
  const Tensor &ids = c.in[0], &table = c.in[1], &y = c.out[0];
  for (int64_t r = 0; r < y.n[2]; ++r) {
    const int32_t id = ids.i32()[r];
    int32_t* row = y.i32() + r * y.s[2];
    if (id >= 0 && id < table.n[2]) {
      copy_row(row, table.i32() + id * table.s[2], y.n[3]);
    } else {
      for (int64_t j = 0; j < y.n[3]; ++j) row[j] = c.i[0] ? -1 : 0;  // i: 1 if the table holds ids
    }
  }
}

// in: x [T, W], rows [R]; out [R, W].
void gather_rows(const Call& c, Pool& pool) {
  const Tensor &x = c.in[0], &rows = c.in[1], &y = c.out[0];
  split(pool, y.n[2], 0.1 * static_cast<double>(y.n[3]) + 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) copy_row(y.f32() + r * y.s[2], x.f32() + rows.i32()[r] * x.s[2], y.n[3]);
  });
}

// in: x [T, W], rows [M], y [M, W]; out [T, W]. i: 1 to add.
void put_rows(const Call& c, Pool& pool) {
  const Tensor &x = c.in[0], &rows = c.in[1], &put = c.in[2], &y = c.out[0];
  split(pool, y.n[2], 0.1 * static_cast<double>(y.n[3]) + 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) copy_row(y.f32() + r * y.s[2], x.f32() + r * x.s[2], y.n[3]);
  });
  for (int64_t m = 0; m < put.n[2]; ++m) {
    float* to = y.f32() + rows.i32()[m] * y.s[2];
    const float* from = put.f32() + m * put.s[2];
    for (int64_t j = 0; j < y.n[3]; ++j) to[j] = c.i[0] ? to[j] + from[j] : from[j];
  }
}

// in: parts; out: the places of the parts in the whole.
void concat(const Call& c, Pool& pool) {
  for (int k = 0; k < c.n_in; ++k) {
    Call one = c;
    one.in = c.in + k;
    one.out = c.out + k;
    copy(one, pool);
  }
}

// in: x [T, D]; out [S, D]. i: kind, 0 mean, 1 first, 2 last.
void pool_rows(const Call& c, Pool&) {
  const Tensor &x = c.in[0], &y = c.out[0];
  for (int64_t s = 0; s < y.n[2]; ++s) {
    const int64_t begin = c.step->seq_start[s], end = c.step->seq_start[s + 1];
    float* row = y.f32() + s * y.s[2];
    if (c.i[0] != 0) {
      copy_row(row, x.f32() + (c.i[0] == 1 ? begin : end - 1) * x.s[2], y.n[3]);
      continue;
    }
    for (int64_t j = 0; j < y.n[3]; j += kLanes) {
      Lanes total = splat(0.0f);
      for (int64_t t = begin; t < end; ++t) total = total + load_row(x.f32() + t * x.s[2], j, 1, y.n[3] - j);
      store_row(row + j, total / splat(static_cast<float>(end - begin)), y.n[3] - j);
    }
  }
}

// in: x [R, V]; out: values [R, k], ids [R, k], lse [R]. Best first; equal values: lowest id first.
void top_k(const Call& c, Pool& pool) {
  const Tensor& x = c.in[0];
  const int64_t k = c.out[0].n[3], width = x.n[3];
  split(pool, x.rows(), 2.0 * static_cast<double>(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* p = x.f32() + x.row_offset(r);
      float* best = c.out[0].f32() + r * k;
      int32_t* ids = c.out[1].i32() + r * k;
      int64_t n = 0;
      for (int64_t j = 0; j < width; ++j) {
        if (n == k && !(p[j] > best[n - 1])) continue;
        int64_t at = n < k ? n++ : n - 1;
        for (; at > 0 && p[j] > best[at - 1]; --at) best[at] = best[at - 1], ids[at] = ids[at - 1];
        best[at] = p[j];
        ids[at] = static_cast<int32_t>(j);
      }
      Lanes total = splat(0.0f);
      for (int64_t j = 0; j < width; j += kLanes) {
        const int64_t left = width - j;
        const Lanes e = exp(load_row(p, j, 1, left) - splat(best[0]));
        total = total + (left >= kLanes ? e : select(mask_bits((1u << left) - 1), e, splat(0.0f)));
      }
      c.out[2].f32()[r] = best[0] + std::log(sum_lanes(total));
    }
  });
}

}  // namespace mill::TM_ISA
