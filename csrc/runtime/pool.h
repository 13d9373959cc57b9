// A team of threads that share the items of one job at a time.
//
// Each thread has a share of the items, neighbours, and takes them from its front, one by one or half of what is left at
// once; who has done its own takes from the tails of others, so that a thread that is late, or whose core was taken by
// another process, claims nothing and nobody waits for it. Since shares are known beforehand, a thread that waits may fetch what it will read next (`ahead`).
// Workers spin for the next job, about as long as lies between two steps, then park; an idle pool burns nothing. Jobs are flat,
// one after another. Who waits for a thread whose core was taken by another process gives it its own core (`team.h`, `cores.h`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace mill {

// One job's code: does the items begin…end−1 on thread `thread` (0 is the caller of `Pool::parallel`). Must not throw.
using RangeFn = void (*)(const void* context, int64_t begin, int64_t end, int thread);

class Team;

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // Runs items 0…n−1 and returns when all are done; only the holder of a `Turn` may call it. `halves`: a thread takes half
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
  std::byte* scratch(int thread) { return scratch_[static_cast<size_t>(thread)].get(); }
  size_t scratch_bytes() const { return scratch_bytes_; }

  // Held by an executable for a whole step: executables share a pool by taking turns.
  class Turn {
   public:
    explicit Turn(Pool& pool);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Pool& pool_;
  };

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };

  int threads_;
  std::unique_ptr<Team> team_;
  std::vector<std::unique_ptr<std::byte, Free>> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace mill
