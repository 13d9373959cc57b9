// See amx.h.
#include "amx.h"

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

bool grant_amx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and tiles' number among the states of a thread
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace mill
