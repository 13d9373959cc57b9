// What a pool is made of: its threads, their shares of the job, and what they know of each other.
//
// A job costs few cache lines that travel between cores: one from the caller to each worker, with its share and the job, one back
// with the number of items it has done, and those of the shares that others take from.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/cores.h"
#include "runtime/pool.h"

namespace mill {

class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void begin();  // of a caller's turn, and its end
  void end();
  void parallel(int64_t n, bool halves, RangeFn fn, const void* context);
  void ahead(int thread, const void* from, int64_t bytes);

 private:
  using Microseconds = std::chrono::microseconds;

  static constexpr int32_t kNowhere = -2;

  struct Job {
    RangeFn fn = nullptr;
    const void* context = nullptr;
    int64_t items = 0;
    int32_t stride = 1;  // items of a claim: more than one where they exceed the ticket's 16 bits
  };

  struct Share {
    // Written by the caller, and by who takes items. Ticket: epoch in bits 32–63, end of the items that are left in 16–31, the
    // first of them in 0–15. The job is written while no item of the one before is claimed or open, and read after a claim.
    alignas(64) std::atomic<uint64_t> ticket{0};
    std::atomic<const char*> ahead{nullptr};
    std::atomic<int64_t> ahead_bytes{0};
    Job job;
    std::atomic<bool> halves{false};  // of the job; read before a claim

    // Written by the thread itself.
    alignas(64) std::atomic<int64_t> done{0};  // items, since the team began
    alignas(64) std::atomic<bool> inside{false};  // has work, or may have
    Seat seat;
    const char* seen = nullptr;  // the hint it follows, and how far it came
    int64_t fetched = 0;

    std::atomic<int32_t> guest{kNowhere};   // the caller's core, which it was given for the items it has
    std::atomic<int32_t> leaves{kNowhere};  // where it goes, having called the caller to its core
    int64_t time = 0;                // of the caller: the CPU time that the thread had when it looked
  };

  int threads() const { return threads_; }
  void dismiss();
  void work(int thread);
  void drain(int thread);
  int64_t take_all(int thread);
  int64_t claim(int owner, int thread);
  bool any_open() const;
  bool all_done() const;
  bool park();
  void wake();
  void wake_sleepers();
  bool linger(int thread);
  bool stand_in(int thread);
  void send_off();
  bool give_way();
  void sleep_until_done();
  void fetch(int thread);
  template <class F>
  bool spin(int thread, Microseconds time, const F& done);

  const int threads_;
  const Microseconds linger_;  // as long a worker waits for the next job
  std::unique_ptr<Share[]> shares_;
  uint64_t epoch_ = 0;
  int64_t asked_ = 0;                // items of all jobs so far
  std::atomic<bool> stop_{false};
  std::atomic<bool> watched_{false};  // one worker at a time looks after the caller
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<bool> parked_{false};   // someone has, since the last wake
  alignas(64) std::atomic<int32_t> waiting_{0};  // the caller sleeps

  std::mutex turn_;
  std::vector<std::thread> workers_;
};

}  // namespace mill
