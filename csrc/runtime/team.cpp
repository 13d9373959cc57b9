#include "runtime/team.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mill {
namespace {

constexpr uint64_t kItemMask = 0xffff;
constexpr auto kSpin = std::chrono::microseconds(20);
// As long a thread must stand still until another gives it its core: what takes cores from a quiet machine's threads is over sooner.
constexpr auto kStill = std::chrono::microseconds(60);
// As long a worker waits for the next job: from step to step, since one that slept has to wait for a core again.
constexpr auto kLinger = std::chrono::microseconds(150);
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

// Where there are fewer cores than threads, nobody lingers on one that another could use.
Team::Team(int threads)
    : threads_(threads),
      linger_(static_cast<unsigned>(threads) <= std::thread::hardware_concurrency() ? kLinger : kSpin),
      shares_(new Share[static_cast<size_t>(threads)]) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {  // the system gives no more threads
    dismiss();
    throw;
  }
}

Team::~Team() { dismiss(); }

void Team::dismiss() {
  stop_.store(true);
  wake();
  for (auto& worker : workers_) worker.join();
}

// Sleepers are woken before there is work: until there is they have come to.
void Team::begin() {
  turn_.lock();
  shares_[0].seat.take();
  shares_[0].inside.store(true, std::memory_order_relaxed);
  wake_sleepers();
}

void Team::end() {
  shares_[0].inside.store(false, std::memory_order_relaxed);
  shares_[0].seat.look();
  turn_.unlock();
}

void Team::wake() {
  wake_.fetch_add(1, std::memory_order_seq_cst);
  wake_.notify_all();
}

void Team::wake_sleepers() {
  if (parked_.load(std::memory_order_seq_cst) && parked_.exchange(false, std::memory_order_seq_cst)) wake();
}

// A few lines of what this thread will read next.
void Team::fetch(int thread) {
  Share& mine = shares_[thread];
  const char* from = mine.ahead.load(std::memory_order_acquire);
  if (from != mine.seen) {
    mine.seen = from;
    mine.fetched = 0;
  }
  const int64_t end = std::min({mine.ahead_bytes.load(std::memory_order_relaxed), mine.fetched + kFetch, kMostAhead});
  for (; mine.fetched < end; mine.fetched += 64) __builtin_prefetch(from + mine.fetched, 0, 2);
}

// Spins until `done()` or the time is over, fetching ahead; the clock is read once in 32 turns.
template <class F>
bool Team::spin(int thread, Microseconds time, const F& done) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      fetch(thread);
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

void Team::parallel(int64_t n, bool halves, RangeFn fn, const void* context) {
  if (shares_[0].seat.look()) send_off();
  const int64_t stride = (n + kItemMask - 1) / static_cast<int64_t>(kItemMask), claims = (n + stride - 1) / stride;
  asked_ += claims;
  ++epoch_;
  for (int t = threads() - 1; t >= 0; --t) {
    Share& share = shares_[t];
    share.job = {fn, context, n, static_cast<int32_t>(stride)};
    share.halves.store(halves, std::memory_order_relaxed);
    share.ticket.store(epoch_ << 32 | static_cast<uint64_t>(claims * (t + 1) / threads()) << 16 |
                           static_cast<uint64_t>(claims * t / threads()),
                       std::memory_order_seq_cst);
  }
  wake_sleepers();
  Share& mine = shares_[0];
  mine.done.store(mine.done.load(std::memory_order_relaxed) + take_all(0), std::memory_order_relaxed);
  while (!spin(0, kSpin, [this] { return all_done(); }))
    if (give_way()) return sleep_until_done();
}

// For the caller: whether every item that was ever asked for is done.
bool Team::all_done() const {
  int64_t left = asked_;
  for (int t = 0; t < threads(); ++t) left -= shares_[t].done.load(std::memory_order_seq_cst);
  return left == 0;
}

// Who waits for another thread that has lost its core gives it this one: true if there was such a thread. One that only takes
// its time is waited for.
bool Team::give_way() {
  const auto inside = [this](int t) { return shares_[t].inside.load(std::memory_order_relaxed); };
  for (int t = 1; t < threads(); ++t)
    if (inside(t)) shares_[t].time = shares_[t].seat.time();
  if (spin(0, kStill, [this] { return all_done(); })) return false;
  for (int t = 1; t < threads(); ++t)
    if (inside(t) && shares_[t].seat.time() == shares_[t].time) {
      const int here = Seat::current_core();
      shares_[t].guest.store(here, std::memory_order_relaxed);
      shares_[t].seat.call_to(here);
      return true;
    }
  return false;
}

void Team::sleep_until_done() {
  shares_[0].inside.store(false, std::memory_order_relaxed);
  for (waiting_.store(1, std::memory_order_seq_cst); !all_done(); waiting_.store(1, std::memory_order_seq_cst))
    waiting_.wait(1, std::memory_order_seq_cst);
  waiting_.store(0, std::memory_order_relaxed);
  shares_[0].inside.store(true, std::memory_order_relaxed);
}

// Does all that there is to take, its own items first; how many claims that were.
int64_t Team::take_all(int thread) {
  int64_t took = 0;
  const int n = threads();
  for (int k = 0; k < n; ++k) {
    const int owner = thread + k < n ? thread + k : thread + k - n;
    while (const int64_t some = claim(owner, thread)) took += some;
  }
  return took;
}

int64_t Team::claim(int owner, int thread) {
  Share& share = shares_[owner];
  const bool own = owner == thread;
  uint64_t ticket = share.ticket.load(std::memory_order_acquire), left, take;
  do {
    if (!open(ticket)) return 0;
    // Whichever job's `halves` is read, no more is taken than there is.
    take = own && share.halves.load(std::memory_order_relaxed) ? (remaining(ticket) + 1) / 2 : 1;
    left = own ? ticket + take : ticket - take * (kItemMask + 1);
  } while (!share.ticket.compare_exchange_weak(ticket, left, std::memory_order_acq_rel, std::memory_order_acquire));
  // The job cannot change before this claim is counted as done, so its plain fields are safe to read.
  const Job& job = share.job;
  const int64_t begin = static_cast<int64_t>((own ? ticket : left >> 16) & kItemMask) * job.stride;
  job.fn(job.context, begin, std::min(begin + static_cast<int64_t>(take) * job.stride, job.items), thread);
  return static_cast<int64_t>(take);
}

bool Team::any_open() const {
  for (int t = 0; t < threads(); ++t)
    if (open(shares_[t].ticket.load(std::memory_order_seq_cst))) return true;
  return false;
}

void Team::ahead(int thread, const void* from, int64_t bytes) {
  shares_[thread].ahead_bytes.store(bytes, std::memory_order_relaxed);
  shares_[thread].ahead.store(static_cast<const char*>(from), std::memory_order_release);
}

// A worker with nothing to do looks whether the caller has lost its core, and then changes places with it: true if it did, or if
// there is work again.
bool Team::stand_in(int thread) {
  Share &caller = shares_[0], &mine = shares_[thread];
  if (!caller.inside.load(std::memory_order_relaxed) || watched_.exchange(true)) return false;
  const int64_t before = caller.seat.time();
  bool more = spin(thread, kStill, [&mine] { return open(mine.ticket.load(std::memory_order_relaxed)); });
  if (!more && before >= 0 && caller.inside.load(std::memory_order_relaxed) && caller.seat.time() == before) {
    const int there = caller.seat.core();
    mine.leaves.store(there, std::memory_order_relaxed);
    caller.seat.call_to(Seat::current_core());
    if (mine.leaves.exchange(kNowhere, std::memory_order_relaxed) != kNowhere) mine.seat.step_aside(there);
    more = true;
  }
  watched_.store(false);
  return more;
}

// The caller runs again: a worker that called it and was stopped before it could leave is sent where it wanted to go.
void Team::send_off() {
  for (int t = 1; t < threads(); ++t) {
    const int there = shares_[t].leaves.load(std::memory_order_relaxed);
    if (there == kNowhere || there == shares_[0].seat.core()) continue;  // it leaves by itself, for any other core
    if (shares_[t].leaves.exchange(kNowhere, std::memory_order_relaxed) != kNowhere) shares_[t].seat.call_to(there);
  }
}

bool Team::park() {
  const uint32_t seen = wake_.load(std::memory_order_seq_cst);
  parked_.store(true, std::memory_order_seq_cst);
  if (!any_open() && !stop_.load()) wake_.wait(seen, std::memory_order_seq_cst);
  return !stop_.load();
}

void Team::work(int thread) {
  do {
    do {
      drain(thread);
    } while (linger(thread));
    shares_[thread].seat.look();
  } while (park());
}

// Waits for work, and looks after the caller meanwhile; false if neither wanted anything.
bool Team::linger(int thread) {
  const std::atomic<uint64_t>& own = shares_[thread].ticket;
  const auto end = std::chrono::steady_clock::now() + linger_;
  do {
    if (spin(thread, kSpin, [&own] { return open(own.load(std::memory_order_relaxed)); })) return true;
    if (stand_in(thread)) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// A worker takes what it can get. One that was given the caller's core for that gives it back when it is done.
void Team::drain(int thread) {
  Share& mine = shares_[thread];
  mine.seat.take();
  mine.inside.store(true, std::memory_order_relaxed);
  if (const int64_t took = take_all(thread)) {
    mine.done.store(mine.done.load(std::memory_order_relaxed) + took, std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_seq_cst)) {
      waiting_.store(0, std::memory_order_seq_cst);
      waiting_.notify_all();
    }
  }
  mine.inside.store(false, std::memory_order_relaxed);
  if (mine.guest.load(std::memory_order_relaxed) == kNowhere) return;
  if (mine.guest.exchange(kNowhere, std::memory_order_relaxed) == Seat::current_core()) mine.seat.step_aside(mine.seat.core());
}

}  // namespace mill
