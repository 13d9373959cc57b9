#include "runtime/replay.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "ops/kernels.h"

namespace mill {
namespace {

void need(bool condition, const std::string& why) {
  if (!condition) throw std::invalid_argument(why);
}

// Nanoseconds; `own`: of this thread's CPU time, which other processes do not disturb.
int64_t now(bool own) {
  timespec t;
  clock_gettime(own ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

Kernel find(const std::string& name) {
  const KernelTable& table = TM_SELECT(op_kernels);
  for (int i = 0; i < table.count; ++i)
    if (table.entries[i].name == name) return table.entries[i].run;
  throw std::invalid_argument("there is no kernel " + name);
}

}  // namespace

Executable::Executable(std::shared_ptr<Pool> pool, std::byte* arena, std::vector<int64_t> most, int64_t page_tokens)
    : pool_(std::move(pool)), arena_(arena), most_(std::move(most)), page_tokens_(page_tokens) {}

int64_t Executable::keep(const void* object) {
  objects_.push_back(object);
  return static_cast<int64_t>(objects_.size()) - 1;
}

int64_t Executable::add_matrix(linear::Matrix m) { return keep(&matrices_.emplace_back(m)); }
int64_t Executable::add_experts(Experts e) { return keep(&experts_.emplace_back(e)); }
int64_t Executable::add_slots(SlotCache c) { return keep(&slots_.emplace_back(c)); }

int64_t Executable::add_paged(PagedCache c) {
  const auto table = static_cast<size_t>(c.table);
  if (table_pages_.size() <= table) table_pages_.resize(table + 1, INT32_MAX);
  table_pages_[table] = std::min<int64_t>(table_pages_[table], c.pages);
  return keep(&paged_.emplace_back(c));
}

void Executable::add_op(const std::string& kernel, const int64_t* operands, int n_in, int n_out,
                        std::vector<int64_t> objects, std::vector<int64_t> ints, std::vector<float> floats) {
  Record& r = records_.emplace_back();
  r.name = kernel;
  r.kernel = find(kernel);
  r.operands.resize(static_cast<size_t>(n_in + n_out));
  static_assert(sizeof(Operand) == Operand::kFields * sizeof(int64_t));
  std::memcpy(r.operands.data(), operands, r.operands.size() * sizeof(Operand));
  r.tensors.resize(r.operands.size());
  for (size_t k = 0; k < r.operands.size(); ++k)
    if (r.operands[k].space == Operand::kInput) inputs_.emplace_back(&r.tensors[k], static_cast<size_t>(r.operands[k].value));
  for (const int64_t k : objects) r.objects.push_back(k < 0 ? nullptr : objects_.at(static_cast<size_t>(k)));
  r.ints = std::move(ints);
  r.floats = std::move(floats);
  r.call = {r.tensors.data(), r.tensors.data() + n_in, r.ints.data(), r.floats.data(), r.objects.data(), n_in, n_out,
            static_cast<int>(r.ints.size()), static_cast<int>(r.floats.size()), static_cast<int>(r.objects.size()), &view_};
  if (kernel == "linears") {
    if (product_ != nullptr) product_->next = &r.call;
    product_ = &r.call;
  }
  sizes_.clear();
}

void Executable::check(const StepArrays& step) const {
  need(step.sizes.size() == most_.size(), "the step has another number of symbols than the program");
  for (size_t i = 0; i < most_.size(); ++i)
    need(step.sizes[i] >= 0 && step.sizes[i] <= most_[i],
         "the step has " + std::to_string(step.sizes[i]) + " rows of a kind planned for " + std::to_string(most_[i]));
  const int64_t T = step.sizes[1], S = step.sizes[2];
  const auto* index = static_cast<const int32_t*>(step.fixed[0]);
  const auto* until = static_cast<const int32_t*>(step.fixed[1]);
  const auto* start = static_cast<const int32_t*>(step.fixed[2]);
  need(T > 0 && S > 0 && start[0] == 0 && start[S] == T, "a step needs tokens, in ranges that cover it");
  for (int64_t s = 0; s < S; ++s) need(start[s] < start[s + 1], "each sequence of a step needs a token");
  need(step.tables.size() >= table_pages_.size(), "the step lacks a page table");
  for (size_t w = 0; w < table_pages_.size(); ++w) {
    const auto* table = static_cast<const int32_t*>(step.tables[w]);
    for (int64_t i = 0; i < S * step.table_columns[w]; ++i)
      need(table[i] >= 0 && table[i] < table_pages_[w], "the step names page " + std::to_string(table[i]) + " of " +
                                                            std::to_string(table_pages_[w]));
    for (int64_t t = 0; t < T; ++t)
      need(index[t] >= 0 && std::max(index[t], until[t]) / page_tokens_ < step.table_columns[w],
           "a token at " + std::to_string(index[t]) + " lies beyond its page table");
  }
  for (const SlotCache& c : slots_)
    for (int64_t s = 0; s < S; ++s) {
      const int32_t slot = static_cast<const int32_t*>(step.fixed[5])[s];
      need(slot >= 0 && slot < c.slots, "the step names slot " + std::to_string(slot) + " of " + std::to_string(c.slots));
    }
}

void Executable::resolve(const StepArrays& step, bool sizes_changed) {
  view_.T = step.sizes[1];
  view_.S = step.sizes[2];
  const int32_t** const fields[] = {&view_.index, &view_.until, &view_.seq_start, &view_.past,
                                    &view_.sure,  &view_.slot,  &view_.base};
  for (size_t i = 0; i < 7; ++i) *fields[i] = static_cast<const int32_t*>(step.fixed[i]);
  view_.tables.clear();
  for (const void* t : step.tables) view_.tables.push_back(static_cast<const int32_t*>(t));
  view_.table_columns = step.table_columns;
  if (sizes_changed) reshape(step.sizes);
  for (const auto& [tensor, number] : inputs_) tensor->data = const_cast<void*>(step.inputs[number]);
}

// Lays out all operands for these sizes; they are many more than the inputs, and most steps have the sizes of the last one.
void Executable::reshape(const std::vector<int64_t>& sizes) {
  for (Record& r : records_)
    for (size_t k = 0; k < r.operands.size(); ++k) {
      const Operand& o = r.operands[k];
      Tensor& t = r.tensors[k];
      if (o.space == Operand::kArena) t.data = arena_ + o.value;
      if (o.space == Operand::kAddress) t.data = reinterpret_cast<void*>(o.value);
      for (int a = 0; a < 4; ++a) {
        t.n[a] = sizes[static_cast<size_t>(o.axis[a].symbol)] * o.axis[a].times;
        t.s[a] = o.axis[a].stride;
      }
      // positions [c, T]: rows of an input lie T apart, the only stride that depends on a symbol.
      if (o.space == Operand::kInput && t.n[2] > 1) t.s[2] = t.n[3];
    }
}

bool Executable::run(StepArrays step) {
  check(step);
  const Pool::Turn turn(*pool_);
  pool_->reserve(scratch_);
  const bool changed = step.sizes != sizes_;
  resolve(step, changed);
  sizes_ = std::move(step.sizes);
  cancelled_.store(false, std::memory_order_relaxed);
  for (Record& r : records_) {
    if (cancelled_.load(std::memory_order_relaxed)) return false;
    if (!profile_) {
      r.kernel(r.call, *pool_);
      continue;
    }
    const int64_t begin = now(pool_->threads() == 1);
    r.kernel(r.call, *pool_);
    r.ns += now(pool_->threads() == 1) - begin;
  }
  return true;
}

std::vector<int64_t> Executable::take_times() {
  std::vector<int64_t> times;
  for (Record& r : records_) {
    times.push_back(r.ns);
    r.ns = 0;
  }
  return times;
}

std::vector<std::string> Executable::names() const {
  std::vector<std::string> names;
  for (const Record& r : records_) names.push_back(r.name);
  return names;
}

}  // namespace mill
