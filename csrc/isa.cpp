// See isa.h.
#include "isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "amx.h"

namespace mill {
namespace {

struct Chosen {
  Isa isa;
  std::string doubt;
};

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

struct Choice {
  const char* name;
  Isa isa;
  bool there;
  const char* (*refuses)();
};

[[noreturn]] void refuse(const std::string& wish, const std::string& why) {
  throw std::runtime_error("TENSORMILL_ISA asks for " + wish + ", " + why);
}

Chosen detect() {
  __builtin_cpu_init();
  const char* given = std::getenv("TENSORMILL_ISA");
  const std::string wish = given != nullptr ? given : "";
  const bool avx2 = has_avx2(), avx512 = has_avx512(), amx = avx512 && has_amx();
  const Choice choices[] = {{"avx2", Isa::avx2, avx2, nullptr},
                            {"avx512", Isa::avx512, avx512, nullptr},
                            {"amx", Isa::amx, amx, refuses_amx},
                            {"amx-emulated", Isa::amx_emulated, avx512, refuses_emulated_amx}};
  for (const Choice& c : choices) {
    if (wish != c.name) continue;
    if (!c.there) refuse(wish, "which this processor lacks");
    if (const char* why = c.refuses != nullptr ? c.refuses() : nullptr) refuse(wish, std::string("but ") + why);
    return {c.isa, ""};
  }
  if (!wish.empty()) throw std::runtime_error("TENSORMILL_ISA is '" + wish + "'; expected avx2, avx512 or amx");
  if (amx) {
    const char* why = refuses_amx();
    if (why == nullptr) return {amx_pays() ? Isa::amx : Isa::avx512, ""};
    return {Isa::avx512, std::string("AVX-512 is used in place of AMX: ") + why};
  }
  if (avx512) return {Isa::avx512, ""};
  if (avx2) return {Isa::avx2, ""};
  throw std::runtime_error("this processor lacks AVX2, FMA, BMI2 or F16C (x86-64-v3), which the CPU backend needs");
}
#else
Chosen detect() { return {Isa::neon, ""}; }
#endif

const Chosen& chosen() {
  static const Chosen chosen = detect();
  return chosen;
}

}  // namespace

Isa isa() { return chosen().isa; }
const char* isa_doubt() { return chosen().doubt.c_str(); }

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
