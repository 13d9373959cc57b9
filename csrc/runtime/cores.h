// Which core a thread sits on, whether it is given time there, and how one thread moves another to a core of its choice.
//
// Where another process keeps a core busy, a thread that lost its core in the middle of a piece of work keeps all others waiting
// for a whole slice of the system's scheduler, 3 to 4 ms, while the core of who waits stands idle. Only Linux tells and
// allows what is needed; elsewhere nothing is known and nothing moves. Affinities are left as they were found.
#pragma once

#include <atomic>
#include <cstdint>

namespace mill {

// One thread, as others see it.
class Seat {
 public:
  // By the thread itself, when it begins to work under this name, and whenever it may have been moved.
  void take();
  void look() { core_.store(current_core(), std::memory_order_relaxed); }

  // Nanoseconds of CPU time it was given so far; −1 where none can say. It stands still if two looks give the same.
  int64_t time() const;
  // The core where it last said it was.
  int core() const { return core_.load(std::memory_order_relaxed); }
  // Moves it to a core, from which the system may move it again.
  void move_to(int core) const;

  static int current_core();
  // How often a thread was moved in this process.
  static int64_t moves();
  // Moves the calling thread to a core, or, where that is the one it is on, to any other; it returns once it runs there.
  static void step_aside(int core);

 private:
  std::atomic<int64_t> clock_{0};
  std::atomic<int32_t> thread_{0};  // the system's number
  std::atomic<int32_t> core_{-1};
};

}  // namespace mill
