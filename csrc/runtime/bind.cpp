// Python's view of the runtime: a pool, and executables filled record by record. Addresses are integers whose memory the
// Python side keeps alive; sizes are checked there (backends/cpu), steps are checked here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "ops/kernels.h"
#include "runtime/cores.h"
#include "runtime/replay.h"

namespace nb = nanobind;

namespace mill {
namespace {

using Ints = std::vector<int64_t>;
using Operands = nb::ndarray<const int64_t, nb::shape<-1, Operand::kFields>, nb::c_contig, nb::device::cpu>;

using Arrays = std::vector<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>;

// Never null, which would say that an op does without.
std::vector<const void*> pointers(const Arrays& arrays) {
  static const int32_t nothing = 0;
  std::vector<const void*> out;
  for (const auto& a : arrays) out.push_back(a.size() ? a.data() : &nothing);
  return out;
}

bool run(Executable& e, Ints sizes, const Arrays& fixed, const Arrays& tables, const Arrays& inputs) {
  if (fixed.size() != 7) throw std::invalid_argument("a step has seven fixed arrays");
  std::vector<int64_t> columns;
  for (const auto& table : tables) {
    if (table.ndim() != 2) throw std::invalid_argument("a page table has a row for each sequence");
    columns.push_back(static_cast<int64_t>(table.shape(1)));
  }
  StepArrays step{std::move(sizes), pointers(fixed), pointers(tables), std::move(columns), pointers(inputs)};
  nb::gil_scoped_release release;
  return e.run(std::move(step));
}

int64_t add_paged(Executable& e, int64_t data, const Ints& f) {
  PagedCache c;
  c.data = reinterpret_cast<std::byte*>(data);
  c.page_bytes = f[0];
  c.head_bytes = f[1];
  c.block_bytes = f[2];
  c.v_offset = f[3];
  int32_t* const fields[] = {&c.pages, &c.heads, &c.k, &c.v, &c.rows, &c.blocks, &c.lanes, &c.k_stride, &c.v_stride,
                             &c.ratio, &c.window, &c.style, &c.type, &c.table};
  if (f.size() != 18) throw std::invalid_argument("a paged cache has 18 numbers");
  for (size_t i = 0; i < 14; ++i) *fields[i] = static_cast<int32_t>(f[4 + i]);
  return e.add_paged(c);
}

}  // namespace

void bind_runtime(nb::module_& m) {
  nb::class_<Pool>(m, "Pool", "A team of threads, the caller included.")
      .def(nb::init<int>(), nb::arg("threads"))
      .def_prop_ro("threads", &Pool::threads);
  nb::class_<Executable>(m, "Executable", "A compiled program.")
      .def("__init__", [](Executable* e, std::shared_ptr<Pool> pool, int64_t arena, Ints most, int64_t page_tokens) {
        new (e) Executable(std::move(pool), reinterpret_cast<std::byte*>(arena), std::move(most), page_tokens);
      }, nb::arg("pool"), nb::arg("arena"), nb::arg("most"), nb::arg("page_tokens"))
      .def("add_matrix", [](Executable& e, int type, int64_t rows, int64_t columns, int64_t data) {
        return e.add_matrix({static_cast<linear::Type>(type), rows, columns, reinterpret_cast<const uint8_t*>(data)});
      })
      .def("add_experts", [](Executable& e, int type, int64_t count, int64_t rows, int64_t columns, int64_t stride, int64_t data) {
        return e.add_experts(
            {static_cast<linear::Type>(type), count, rows, columns, stride, reinterpret_cast<const uint8_t*>(data)});
      })
      .def("add_paged", &add_paged, nb::arg("data"), nb::arg("fields"))
      .def("add_slots", [](Executable& e, int64_t data, int64_t floats, int32_t slots, int32_t rows, int32_t width, int64_t state) {
        return e.add_slots({reinterpret_cast<float*>(data), floats, slots, rows, width, state});
      })
      .def("add_op", [](Executable& e, const std::string& kernel, const Operands& operands, int n_in, Ints objects, Ints ints,
                        const std::vector<double>& floats) {
        const int n = static_cast<int>(operands.shape(0));
        if (n_in > n) throw std::invalid_argument("an op has fewer operands than inputs");
        e.add_op(kernel, operands.data(), n_in, n - n_in, std::move(objects), std::move(ints),
                 std::vector<float>(floats.begin(), floats.end()));
      })
      .def("reserve_scratch", &Executable::reserve_scratch)
      .def("run", &run, nb::arg("sizes"), nb::arg("fixed"), nb::arg("tables"), nb::arg("inputs"))
      .def("cancel", &Executable::cancel)
      .def("profile", &Executable::profile)
      .def("take_times", &Executable::take_times)
      .def("names", &Executable::names);
  m.def("moves", &Seat::moves, "How often a thread of this process was given the core of one that waited for it.");
  m.def("attention_scratch", [](int64_t group, int64_t width, int64_t values) {
    return TM_SELECT(op_kernels).attention_scratch(group, width, values);
  });
  m.def("kernel_names", [] {
    std::vector<std::string> names;
    const KernelTable& table = TM_SELECT(op_kernels);
    for (int i = 0; i < table.count; ++i) names.emplace_back(table.entries[i].name);
    return names;
  });
}

}  // namespace mill
