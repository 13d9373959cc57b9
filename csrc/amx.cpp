// See amx.h.
#include "amx.h"

#include <initializer_list>

#include "linear/tiled.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mill {

bool has_amx() {
#if defined(__x86_64__)
  constexpr unsigned kTiles = 1u << 24, kBytes = 1u << 25, both = kTiles | kBytes;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & both) == both;
#else
  return false;
#endif
}

namespace {

// Asks the system to let this process use tiles, which it must before the first one.
[[maybe_unused]] bool granted() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and tiles' number among the states of a thread
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

[[maybe_unused]] const char* differs(linear::Multiply* multiply) {
  using linear::Type;
  for (const Type type : {Type::Q4_0, Type::Q4_1, Type::Q4_K, Type::Q2_K, Type::Q6_K})  // the shapes of groups there are
    if (!linear::agrees(multiply, type)) return "its sums are not those of AVX-512 on this machine";
  return nullptr;
}

constexpr const char* kNotBuilt = "this build has no kernels for it";

}  // namespace

const char* refuses_amx() {
#ifdef TM_HAS_amx
  return granted() ? differs(amx::linear::multiply) : "the system does not let this process use it";
#else
  return kNotBuilt;
#endif
}

bool amx_pays() {
#ifdef TM_HAS_amx
  return linear::pays(amx::linear::multiply);
#else
  return false;
#endif
}

const char* refuses_emulated_amx() {
#ifdef TM_HAS_amx_emulated
  return differs(amx_emulated::linear::multiply);
#else
  return kNotBuilt;
#endif
}

}  // namespace mill
