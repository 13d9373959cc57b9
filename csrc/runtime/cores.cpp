#include "runtime/cores.h"

#ifdef __linux__
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace mill {

namespace {

std::atomic<int64_t> called{0};

}  // namespace

int64_t Seat::calls() { return called.load(std::memory_order_relaxed); }

#ifdef __linux__

namespace {

cpu_set_t only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return set;
}

bool holds(const cpu_set_t& set, int core) { return core >= 0 && core < CPU_SETSIZE && CPU_ISSET(core, &set); }

}  // namespace

bool Seat::take() {
  static thread_local const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  if (thread_.load(std::memory_order_relaxed) != self) {
    clockid_t clock;
    thread_.store(0, std::memory_order_relaxed);
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0 || sched_getaffinity(0, sizeof home_, &home_) != 0) return false;
    clock_.store(clock, std::memory_order_relaxed);
    thread_.store(self, std::memory_order_relaxed);
  }
  return look();
}

bool Seat::look() {
  core_.store(sched_getcpu(), std::memory_order_relaxed);
  if (!called_.load(std::memory_order_relaxed)) return false;
  called_.store(false, std::memory_order_relaxed);
  sched_setaffinity(0, sizeof home_, &home_);
  return true;
}

int64_t Seat::time() const {
  timespec t;
  if (thread_.load(std::memory_order_relaxed) == 0) return -1;
  if (clock_gettime(static_cast<clockid_t>(clock_.load(std::memory_order_relaxed)), &t) != 0) return -1;
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

void Seat::call_to(int core) {
  const pid_t thread = thread_.load(std::memory_order_relaxed);
  cpu_set_t allowed;
  if (thread == 0 || sched_getaffinity(thread, sizeof allowed, &allowed) != 0 || !holds(allowed, core)) return;
  called_.store(true, std::memory_order_relaxed);
  called.fetch_add(1, std::memory_order_relaxed);
  const cpu_set_t there = only(core);
  sched_setaffinity(thread, sizeof there, &there);
}

int Seat::current_core() { return sched_getcpu(); }

void Seat::step_aside(int core) {
  const int here = sched_getcpu();
  cpu_set_t there = home_;
  if (core != here && holds(home_, core))
    there = only(core);
  else if (holds(home_, here))
    CPU_CLR(here, &there);
  if (thread_.load(std::memory_order_relaxed) == 0 || CPU_COUNT(&there) == 0) return;
  if (sched_setaffinity(0, sizeof there, &there) == 0) sched_setaffinity(0, sizeof home_, &home_);
}

#else

bool Seat::take() { return false; }
bool Seat::look() { return false; }
int64_t Seat::time() const { return -1; }
void Seat::call_to(int) {}
int Seat::current_core() { return -1; }
void Seat::step_aside(int) {}

#endif

}  // namespace mill
