// The Python module tensormill.backends.cpu._native: each part of csrc binds itself.
#include <nanobind/nanobind.h>

namespace tm {
void bind_linear(nanobind::module_& m);
}

NB_MODULE(_native, m) {
  m.doc() = "Kernels of the CPU backend. Call them through tensormill.backends.cpu.";
  tm::bind_linear(m);
}
