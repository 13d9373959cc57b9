#include "runtime/cores.h"

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace mill {

namespace {

std::atomic<int64_t> moved{0};

}  // namespace

int64_t Seat::moves() { return moved.load(std::memory_order_relaxed); }

#ifdef __linux__

namespace {

bool only(int core, cpu_set_t& set) {
  CPU_ZERO(&set);
  if (core < 0 || core >= CPU_SETSIZE) return false;
  CPU_SET(core, &set);
  return true;
}

}  // namespace

void Seat::take() {
  static thread_local const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  if (thread_.load(std::memory_order_relaxed) != self) {
    clockid_t clock;
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return;
    clock_.store(clock, std::memory_order_relaxed);
    thread_.store(self, std::memory_order_relaxed);
  }
  look();
}

int64_t Seat::time() const {
  timespec t;
  if (thread_.load(std::memory_order_relaxed) == 0) return -1;
  if (clock_gettime(static_cast<clockid_t>(clock_.load(std::memory_order_relaxed)), &t) != 0) return -1;
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

void Seat::move_to(int core) const {
  const pid_t thread = thread_.load(std::memory_order_relaxed);
  cpu_set_t before, there;
  if (thread == 0 || !only(core, there) || sched_getaffinity(thread, sizeof before, &before) != 0) return;
  if (!CPU_ISSET(core, &before)) return;
  if (sched_setaffinity(thread, sizeof there, &there) != 0) return;
  sched_setaffinity(thread, sizeof before, &before);
  moved.fetch_add(1, std::memory_order_relaxed);
}

int Seat::current_core() { return sched_getcpu(); }

void Seat::step_aside(int core) {
  cpu_set_t before, there;
  if (!only(core, there) || sched_getaffinity(0, sizeof before, &before) != 0) return;
  const int here = sched_getcpu();
  if (core == here || !CPU_ISSET(core, &before)) {
    there = before;
    CPU_CLR(here, &there);
  }
  if (CPU_COUNT(&there) > 0 && sched_setaffinity(0, sizeof there, &there) == 0) sched_setaffinity(0, sizeof before, &before);
}

#else

void Seat::take() {}
int64_t Seat::time() const { return -1; }
void Seat::move_to(int) const {}
int Seat::current_core() { return -1; }
void Seat::step_aside(int) {}

#endif

}  // namespace mill
