#include "runtime/pool.h"

#include <algorithm>
#include <chrono>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mill {
namespace {

constexpr uint64_t kItemMask = 0xffff;
constexpr auto kSpin = std::chrono::microseconds(20);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()` or about 20 µs are over; the clock is read once in 32 turns.
template <class F>
bool spin(const F& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

bool open(uint64_t ticket) { return (ticket & kItemMask) < ((ticket >> 16) & kItemMask); }

}  // namespace

void Pool::Free::operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }

Pool::Pool(int threads) {
  scratch_.resize(std::max(threads, 1));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::reserve(size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  for (auto& memory : scratch_)
    memory.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(64))));
  scratch_bytes_ = bytes;
}

void Pool::parallel(int64_t n, ItemFn fn, const void* context) {
  if (n <= 1 || workers_.empty()) {
    for (int64_t i = 0; i < n; ++i) fn(context, i, 0);
    return;
  }
  fn_ = fn;
  context_ = context;
  items_ = n;
  stride_ = (n + kItemMask - 1) / static_cast<int64_t>(kItemMask);
  const uint64_t claims = static_cast<uint64_t>((n + stride_ - 1) / stride_);
  pending_.store(static_cast<int32_t>(claims), std::memory_order_relaxed);
  const uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(epoch << 32 | claims << 16, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1, std::memory_order_seq_cst);
    wake_.notify_all();
  }
  while (claim(0)) {
  }
  const auto done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  if (spin(done)) return;
  // Another thread holds an item and has lost its core: sleep rather than fight it for this one.
  waiting_.store(true, std::memory_order_seq_cst);
  for (int32_t left; (left = pending_.load(std::memory_order_seq_cst)) != 0;) pending_.wait(left);
  waiting_.store(false, std::memory_order_relaxed);
}

bool Pool::claim(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (!open(ticket)) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire));
  // The job cannot change before this claim is counted as done, so its plain fields are safe to read.
  const int64_t begin = static_cast<int64_t>(ticket & kItemMask) * stride_;
  const int64_t end = std::min(begin + stride_, items_);
  for (int64_t item = begin; item < end; ++item) fn_(context_, item, thread);
  if (pending_.fetch_sub(1, std::memory_order_seq_cst) == 1 && waiting_.load(std::memory_order_seq_cst))
    pending_.notify_all();
  return true;
}

bool Pool::park() {
  const uint32_t seen = wake_.load(std::memory_order_seq_cst);
  parked_.fetch_add(1, std::memory_order_seq_cst);
  if (!open(ticket_.load(std::memory_order_seq_cst)) && !stop_.load()) wake_.wait(seen, std::memory_order_seq_cst);
  parked_.fetch_sub(1, std::memory_order_seq_cst);
  return !stop_.load();
}

void Pool::work(int thread) {
  do {
    do {
      while (claim(thread)) {
      }
    } while (spin([this] { return open(ticket_.load(std::memory_order_relaxed)); }));
  } while (park());
}

}  // namespace mill
