#include "runtime/pool.h"

#include <algorithm>
#include <new>

#include "runtime/team.h"

namespace mill {

void Pool::Free::operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }

Pool::Pool(int threads) : threads_(std::max(threads, 1)), team_(new Team(threads_)), scratch_(static_cast<size_t>(threads_)) {}

Pool::~Pool() = default;

void Pool::reserve(size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  for (auto& memory : scratch_)
    memory.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(64))));
  scratch_bytes_ = bytes;
}

void Pool::parallel(int64_t n, bool halves, RangeFn fn, const void* context) {
  if (n > 1 && threads_ > 1) return team_->parallel(n, halves, fn, context);
  if (n > 0) fn(context, 0, n, 0);
}

void Pool::ahead(int thread, const void* from, int64_t bytes) { team_->ahead(thread, from, bytes); }

Pool::Turn::Turn(Pool& pool) : pool_(pool) { pool_.team_->begin(); }
Pool::Turn::~Turn() { pool_.team_->end(); }

}  // namespace mill
