// See isa.h.
#include "isa.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace mill {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
}

Isa detect() {
  __builtin_cpu_init();
  const char* wish = std::getenv("TENSORMILL_ISA");
  const bool any = wish == nullptr || *wish == 0;
  if (!any && std::strcmp(wish, "avx2") != 0 && std::strcmp(wish, "avx512") != 0)
    throw std::runtime_error(std::string("TENSORMILL_ISA is '") + wish + "'; expected avx2 or avx512");
  if ((any || std::strcmp(wish, "avx512") == 0) && has_avx512()) return Isa::avx512;
  if (!any && std::strcmp(wish, "avx512") == 0)
    throw std::runtime_error("TENSORMILL_ISA asks for avx512, which this processor lacks");
  if (has_avx2()) return Isa::avx2;
  throw std::runtime_error("this processor lacks AVX2, FMA, BMI2 or F16C (x86-64-v3), which the CPU backend needs");
}
#else
Isa detect() { return Isa::neon; }
#endif

}  // namespace

Isa isa() {
  static const Isa chosen = detect();
  return chosen;
}

const char* isa_name() {
  switch (isa()) {
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::neon: return "neon";
  }
  return "?";
}

}  // namespace mill
