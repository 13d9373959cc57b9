// Which core a thread sits on, whether it is given time there, and how one thread calls another to a core of its choice.
//
// Where another process keeps a core busy, a thread that lost its core in the middle of a piece of work keeps all others waiting
// for a whole slice of the system's scheduler, 3 to 4 ms, while the core of who waits stands idle. Only Linux tells and
// allows what is needed; elsewhere nothing is known and nothing moves.
//
// To move a thread is to allow it one core only. It frees itself when it next looks: if another did, it could be stopped in
// between by the very thread that it moved.
#pragma once

#include <atomic>
#include <cstdint>

#ifdef __linux__
#include <sched.h>
#endif

namespace mill {

// One thread, as others see it.
class Seat {
 public:
  // By the thread itself: when it begins to work under this name; and often. True if it had been called here.
  bool take();
  bool look();

  // Nanoseconds of CPU time it was given so far; −1 where none can say. It stands still if two looks give the same.
  int64_t time() const;
  // The core where it last said it was.
  int core() const { return core_.load(std::memory_order_relaxed); }
  // By others: moves it to a core, where it stays until it looks.
  void call_to(int core);

  static int current_core();
  // By the thread itself: goes to a core, or, where that is the one it is on, to any other; returns once it runs there.
  void step_aside(int core);

  // How often a thread of this process was called.
  static int64_t calls();

 private:
  std::atomic<int64_t> clock_{0};
  std::atomic<int32_t> thread_{0};  // the system's number
  std::atomic<int32_t> core_{-1};
  std::atomic<bool> called_{false};
#ifdef __linux__
  cpu_set_t home_{};  // where it may run, when it began
#endif
};

}  // namespace mill
