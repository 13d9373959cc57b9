// The Python module tensormill.backends.cpu._native: each part of csrc binds itself.
#include <nanobind/nanobind.h>

namespace mill {
void bind_limits(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_runtime(nanobind::module_& m);
}

NB_MODULE(_native, m) {
  m.doc() = "Kernels of the CPU backend. Call them through tensormill.backends.cpu.";
  mill::bind_limits(m);
  mill::bind_linear(m);
  mill::bind_runtime(m);
}
