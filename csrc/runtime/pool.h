// A team of threads that share the items of one job at a time.
//
// Each thread has a share of the items, neighbours, and takes them from its front, one by one or half of what is left at
// once; who has done its own takes from the tails of others, so that a thread that is late, or whose core was taken by
// another process, claims nothing and nobody waits for it. Since shares are known beforehand, a thread that waits may fetch what it will read next (`ahead`).
// Workers spin about 20 µs for the next job, then park; an idle pool burns nothing. Jobs are flat and run one after another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mill {

// One job's code: does the items begin…end−1 on thread `thread` (0 is the caller of `Pool::parallel`). Must not throw.
using RangeFn = void (*)(const void* context, int64_t begin, int64_t end, int thread);

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs items 0…n−1 and returns when all are done; only the holder of `mutex()` may call it. `halves`: a thread takes half
  // of what is left of its own at once, which costs less where items are short and alike.
  void parallel(int64_t n, bool halves, RangeFn fn, const void* context);

  // As above, for any callable f(item, thread).
  template <class F>
  void each(int64_t n, const F& f) {
    parallel(n, false, [](const void* c, int64_t begin, int64_t end, int thread) {
      for (int64_t item = begin; item < end; ++item) (*static_cast<const F*>(c))(item, thread);
    }, &f);
  }

  // For any callable f(begin, end, thread) to which neighbours are cheaper together.
  template <class F>
  void ranges(int64_t n, const F& f) {
    parallel(n, true, [](const void* c, int64_t begin, int64_t end, int thread) {
      (*static_cast<const F*>(c))(begin, end, thread);
    }, &f);
  }

  // The first of n items that are a thread's own.
  int64_t first_of(int thread, int64_t n) const { return n * thread / threads(); }

  // Where the next job will begin to read for a thread: fetched into its cache while the thread has nothing else to do.
  // A hint, never read through: it may outlive the memory.
  void ahead(int thread, const void* from, int64_t bytes);

  // Memory of one thread that lives until the next call with a larger size; 64-byte aligned, contents arbitrary.
  void reserve(size_t bytes);
  std::byte* scratch(int thread) { return scratch_[thread].get(); }
  size_t scratch_bytes() const { return scratch_bytes_; }

  // Held by an executable for a whole step: executables share a pool by taking turns.
  std::mutex& mutex() { return mutex_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };

  // Ticket: epoch in bits 32–63, end of the items that are left in 16–31, the first of them in 0–15.
  struct alignas(64) Share {
    std::atomic<uint64_t> ticket{0};
    std::atomic<const char*> ahead{nullptr};
    std::atomic<int64_t> ahead_bytes{0};
    // Of the thread alone: the hint it follows, and how far it came.
    const char* seen = nullptr;
    int64_t fetched = 0;
  };

  void work(int thread);
  bool claim(int thread);
  bool claim_from(int owner, int thread);
  bool any_open() const;
  bool park();
  void fetch(int thread);
  template <class F>
  bool spin(int thread, const F& done);

  std::unique_ptr<Share[]> shares_;
  uint64_t epoch_ = 0;
  alignas(64) std::atomic<int32_t> pending_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<int32_t> parked_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> waiting_{false};
  std::atomic<bool> halves_{false};  // of the job; read before a claim
  // The job; written only while nothing is claimed and nothing is pending.
  RangeFn fn_ = nullptr;
  const void* context_ = nullptr;
  int64_t items_ = 0;   // of the job; a claim covers `stride_` of them where they exceed the ticket's 16 bits
  int64_t stride_ = 1;

  std::vector<std::thread> workers_;
  std::vector<std::unique_ptr<std::byte, Free>> scratch_;
  size_t scratch_bytes_ = 0;
  std::mutex mutex_;
};

}  // namespace mill
