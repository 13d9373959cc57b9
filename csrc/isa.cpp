// See isa.h.
#include "isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "amx.h"

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

#ifdef TM_HAS_amx_emulated
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

struct Choice {
  Isa isa;
  const char* name;
  bool there;
};

Isa detect() {
  __builtin_cpu_init();
  const char* wish = std::getenv("TENSORMILL_ISA");
  const std::string wanted = wish != nullptr ? wish : "";
  const Choice choices[] = {
      {Isa::avx2, "avx2", has_avx2()},
      {Isa::avx512, "avx512", has_avx512()},
      {Isa::amx, "amx", has_avx512() && has_amx()},
      {Isa::amx_emulated, "amx-emulated", kEmulated && has_avx512()},
  };
  for (const Choice& c : choices) {
    if (wanted != c.name) continue;
    if (!c.there) throw std::runtime_error("TENSORMILL_ISA asks for " + wanted + ", which this processor lacks");
    if (c.isa == Isa::amx && !grant_amx())
      throw std::runtime_error("TENSORMILL_ISA asks for amx, which this system does not let a process use");
    return c.isa;
  }
  if (!wanted.empty()) throw std::runtime_error("TENSORMILL_ISA is '" + wanted + "'; expected avx2, avx512 or amx");
  if (has_avx512()) return Isa::avx512;
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
    case Isa::amx: return "amx";
    case Isa::amx_emulated: return "amx-emulated";
    case Isa::neon: return "neon";
  }
  return "?";
}

}  // namespace mill
