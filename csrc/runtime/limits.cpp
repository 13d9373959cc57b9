#include "runtime/limits.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace nb = nanobind;

namespace mill {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kLimits[] = {"dot", "pairs", "fma"};  // by their numbers
constexpr int kWarm = 2;  // passes that fill caches and wake the clock

struct Span {
  Clock::time_point start, end;
};

// Seconds of the quickest pass in which `threads` threads do `work(thread)` at once, from the first start to the last end.
double quickest(int threads, int passes, const std::function<void(int)>& work) {
  std::atomic<int> arrived{0};
  std::vector<std::vector<Span>> spans(static_cast<size_t>(threads), std::vector<Span>(static_cast<size_t>(passes)));
  std::vector<std::thread> team;
  std::atomic<bool> given_up{false};
  const auto run = [&](int t) {
    for (int n = 0; n < passes; ++n) {
      arrived.fetch_add(1);
      while (arrived.load() < (n + 1) * threads && !given_up.load()) std::this_thread::yield();
      if (given_up.load()) return;
      Span& s = spans[static_cast<size_t>(t)][static_cast<size_t>(n)];
      s.start = Clock::now();
      work(t);
      s.end = Clock::now();
    }
  };
  const auto join = [&team] {
    for (std::thread& t : team) t.join();
  };
  try {
    for (int t = 0; t < threads; ++t) team.emplace_back(run, t);
  } catch (...) {  // the system gives no more threads
    given_up = true;
    join();
    throw;
  }
  join();
  double best = 1e30;
  for (size_t n = kWarm; n < static_cast<size_t>(passes); ++n) {
    Span whole = spans[0][n];
    for (const std::vector<Span>& s : spans) {
      whole.start = std::min(whole.start, s[n].start);
      whole.end = std::max(whole.end, s[n].end);
    }
    best = std::min(best, std::chrono::duration<double>(whole.end - whole.start).count());
  }
  return best;
}

// Memory in huge pages where the system grants them, as the weights have it.
class Block {
 public:
  explicit Block(size_t bytes) : bytes_(bytes) {
    at_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at_ == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(at_, bytes, MADV_HUGEPAGE);
#endif
    std::memset(at_, 1, bytes);
  }
  ~Block() { munmap(at_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  const std::byte* at() const { return static_cast<const std::byte*>(at_); }

 private:
  void* at_;
  size_t bytes_;
};

}  // namespace

double read_rate(int64_t bytes, int threads, int passes) {
  const int64_t each = bytes / threads / 256 * 256;
  const Block block(static_cast<size_t>(std::max<int64_t>(each, 256) * threads));
  std::atomic<int64_t> seen{0};
  const auto work = [&](int t) { seen ^= TM_SELECT(peaks).read(block.at() + each * t, each); };
  return static_cast<double>(each * threads) / quickest(threads, passes + kWarm, work);
}

double operation_rate(Limit kind, int threads, int passes) {
  constexpr int64_t kRounds = 20000;
  const PeakTable& table = TM_SELECT(peaks);
  std::atomic<double> done{0};
  const auto loop = kind == Limit::dot ? table.dot : kind == Limit::pairs ? table.pairs : table.fma;
  const auto work = [&](int) { done = loop(kRounds); };
  const double seconds = quickest(threads, passes + kWarm, work);
  return done.load() * threads / seconds;
}

void bind_limits(nb::module_& m) {
  m.def("read_rate", [](int64_t bytes, int threads, int passes) {
    if (bytes < 4096 * threads || threads < 1 || passes < 1)
      throw nb::value_error("read_rate: a page for each thread, at least one thread and one pass");
    const nb::gil_scoped_release release;
    return read_rate(bytes, threads, passes);
  }, nb::arg("bytes"), nb::arg("threads"), nb::arg("passes"));
  m.def("operation_rate", [](const std::string& kind, int threads, int passes) {
    const auto known = std::find(std::begin(kLimits), std::end(kLimits), kind);
    if (known == std::end(kLimits)) throw nb::value_error("operation_rate: dot, pairs or fma");
    if (threads < 1 || passes < 1) throw nb::value_error("operation_rate: at least one thread and one pass");
    const nb::gil_scoped_release release;
    return operation_rate(static_cast<Limit>(known - std::begin(kLimits)), threads, passes);
  }, nb::arg("kind"), nb::arg("threads"), nb::arg("passes"));
}

}  // namespace mill
