// A compiled program: a flat list of records over one arena, replayed in one call.
//
// Python's `backends/cpu` lowers a program to records once; a step only supplies the sizes of the symbols and the
// addresses of its arrays. Nothing here allocates during a step.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linear/linear.h"
#include "ops/op.h"
#include "ops/products.h"

namespace mill {

// Where an operand lies and how its axes follow from the symbols: n = size[symbol] · times (symbol 0 has size 1).
struct Operand {
  enum Space : int64_t { kNone, kArena, kInput, kAddress };
  static constexpr int kFields = 14;

  int64_t space, value;  // byte offset, index of the step's array, or address
  struct Axis {
    int64_t symbol, times, stride;
  } axis[4];
};

struct StepArrays {
  std::vector<int64_t> sizes;              // of each symbol; sizes[0] = 1
  std::vector<const void*> fixed;          // index, until, seq_start, past, sure, slot, base
  std::vector<const void*> tables;         // [S, columns] for each lifetime
  std::vector<int64_t> table_columns;
  std::vector<const void*> inputs;         // the program's own inputs, in its order
};

class Executable {
 public:
  // `most`: the largest size of each symbol; 0 is the number one, 1 is T and 2 is S. The caller keeps the arena.
  Executable(std::shared_ptr<Pool> pool, std::byte* arena, std::vector<int64_t> most, int64_t page_tokens);

  int64_t add_matrix(linear::Matrix m);
  int64_t add_experts(Experts e);
  int64_t add_paged(PagedCache c);
  int64_t add_slots(SlotCache c);
  void add_op(const std::string& kernel, const int64_t* operands, int n_in, int n_out, std::vector<int64_t> objects,
              std::vector<int64_t> ints, std::vector<float> floats);

  // Runs all records; throws std::invalid_argument if the step is larger than planned or names a page that is not
  // there. Returns false if `cancel` was called meanwhile.
  bool run(StepArrays step);
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  void reserve_scratch(size_t bytes) { scratch_ = bytes > scratch_ ? bytes : scratch_; }

  // Nanoseconds spent in each record since the last call, while `profile` was set; of CPU time if there is one thread.
  std::vector<int64_t> take_times();
  void profile(bool on) { profile_ = on; }
  std::vector<std::string> names() const;

 private:
  struct Record {
    std::string name;
    Kernel kernel;
    std::vector<Operand> operands;
    std::vector<Tensor> tensors;  // operands for the sizes of the last step
    std::vector<const void*> objects;
    std::vector<int64_t> ints;
    std::vector<float> floats;
    Call call;
    int64_t ns = 0;
  };

  int64_t keep(const void* object);
  void check(const StepArrays& step) const;
  void resolve(const StepArrays& step, bool sizes_changed);
  void reshape(const std::vector<int64_t>& sizes);

  std::shared_ptr<Pool> pool_;
  std::byte* arena_;
  std::vector<int64_t> most_;
  int64_t page_tokens_;
  std::vector<int64_t> sizes_;
  StepView view_;
  std::deque<Record> records_;
  std::vector<std::pair<Tensor*, size_t>> inputs_;  // operands that are inputs of the program, and which of them
  Call* product_ = nullptr;  // of the last record that is a product
  std::deque<linear::Matrix> matrices_;
  std::deque<Experts> experts_;
  std::deque<PagedCache> paged_;
  std::deque<SlotCache> slots_;
  std::vector<const void*> objects_;
  std::vector<int64_t> table_pages_;  // pages of each lifetime
  std::atomic<bool> cancelled_{false};
  size_t scratch_ = linear::kScratchBytes;
  bool profile_ = false;
};

}  // namespace mill
