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
constexpr int64_t kFetch = 4096;           // bytes asked for in one turn of a spin: more would delay the next job
constexpr int64_t kMostAhead = 256 << 10;  // of a thread's second-level cache

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool open(uint64_t ticket) { return (ticket & kItemMask) < ((ticket >> 16) & kItemMask); }
uint64_t remaining(uint64_t ticket) { return ((ticket >> 16) & kItemMask) - (ticket & kItemMask); }

}  // namespace

void Pool::Free::operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }

Pool::Pool(int threads) : shares_(new Share[static_cast<size_t>(std::max(threads, 1))]) {
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

// A few lines of what this thread will read next.
void Pool::fetch(int thread) {
  Share& mine = shares_[thread];
  const char* from = mine.ahead.load(std::memory_order_acquire);
  if (from != mine.seen) {
    mine.seen = from;
    mine.fetched = 0;
  }
  const int64_t end = std::min({mine.ahead_bytes.load(std::memory_order_relaxed), mine.fetched + kFetch, kMostAhead});
  for (; mine.fetched < end; mine.fetched += 64) __builtin_prefetch(from + mine.fetched, 0, 2);
}

// Spins until `done()` or about 20 µs are over, fetching ahead; the clock is read once in 32 turns.
template <class F>
bool Pool::spin(int thread, const F& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      fetch(thread);
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

void Pool::parallel(int64_t n, bool halves, RangeFn fn, const void* context) {
  if (n <= 1 || workers_.empty()) {
    if (n > 0) fn(context, 0, n, 0);
    return;
  }
  fn_ = fn;
  context_ = context;
  halves_.store(halves, std::memory_order_relaxed);
  items_ = n;
  stride_ = (n + kItemMask - 1) / static_cast<int64_t>(kItemMask);
  const int64_t claims = (n + stride_ - 1) / stride_;
  pending_.store(static_cast<int32_t>(claims), std::memory_order_relaxed);
  ++epoch_;
  for (int t = threads() - 1; t >= 0; --t)
    shares_[t].ticket.store(epoch_ << 32 | static_cast<uint64_t>(first_of(t + 1, claims)) << 16 |
                                static_cast<uint64_t>(first_of(t, claims)),
                            std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1, std::memory_order_seq_cst);
    wake_.notify_all();
  }
  while (claim(0)) {
  }
  const auto done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  if (spin(0, done)) return;
  // Another thread holds an item and has lost its core: sleep rather than fight it for this one.
  waiting_.store(true, std::memory_order_seq_cst);
  for (int32_t left; (left = pending_.load(std::memory_order_seq_cst)) != 0;) pending_.wait(left);
  waiting_.store(false, std::memory_order_relaxed);
}

bool Pool::claim(int thread) {
  const int n = threads();
  for (int k = 0; k < n; ++k)
    if (claim_from(thread + k < n ? thread + k : thread + k - n, thread)) return true;
  return false;
}

bool Pool::claim_from(int owner, int thread) {
  std::atomic<uint64_t>& share = shares_[owner].ticket;
  const bool own = owner == thread;
  uint64_t ticket = share.load(std::memory_order_acquire), left, take;
  do {
    if (!open(ticket)) return false;
    // Whichever job's `halves_` is read, no more is taken than there is.
    take = own && halves_.load(std::memory_order_relaxed) ? (remaining(ticket) + 1) / 2 : 1;
    left = own ? ticket + take : ticket - take * (kItemMask + 1);
  } while (!share.compare_exchange_weak(ticket, left, std::memory_order_acq_rel, std::memory_order_acquire));
  // The job cannot change before this claim is counted as done, so its plain fields are safe to read.
  const int64_t begin = static_cast<int64_t>((own ? ticket : left >> 16) & kItemMask) * stride_;
  fn_(context_, begin, std::min(begin + static_cast<int64_t>(take) * stride_, items_), thread);
  const auto done = static_cast<int32_t>(take);
  if (pending_.fetch_sub(done, std::memory_order_seq_cst) == done && waiting_.load(std::memory_order_seq_cst))
    pending_.notify_all();
  return true;
}

bool Pool::any_open() const {
  for (int t = 0; t < threads(); ++t)
    if (open(shares_[t].ticket.load(std::memory_order_seq_cst))) return true;
  return false;
}

void Pool::ahead(int thread, const void* from, int64_t bytes) {
  shares_[thread].ahead_bytes.store(bytes, std::memory_order_relaxed);
  shares_[thread].ahead.store(static_cast<const char*>(from), std::memory_order_release);
}

bool Pool::park() {
  const uint32_t seen = wake_.load(std::memory_order_seq_cst);
  parked_.fetch_add(1, std::memory_order_seq_cst);
  if (!any_open() && !stop_.load()) wake_.wait(seen, std::memory_order_seq_cst);
  parked_.fetch_sub(1, std::memory_order_seq_cst);
  return !stop_.load();
}

void Pool::work(int thread) {
  const std::atomic<uint64_t>& own = shares_[thread].ticket;
  do {
    do {
      while (claim(thread)) {
      }
    } while (spin(thread, [&own] { return open(own.load(std::memory_order_relaxed)); }));
  } while (park());
}

}  // namespace mill
