// Which instruction set runs: chosen once by cpuid, or by TENSORMILL_ISA (avx2, avx512, amx, amx-emulated) for tests.
// Code compiled per set lives in namespace mill::TM_ISA and offers tables of functions; TM_SELECT picks one. AMX is AVX-512
// but for products of many tokens (linear/tiled/).
#pragma once

namespace mill {

enum class Isa { avx2, avx512, amx, amx_emulated, neon };

Isa isa();               // throws std::runtime_error if this machine has none of the compiled sets
const char* isa_name();
const char* isa_doubt();  // what a person should hear about the choice, or ""

}  // namespace mill

// TM_DECLARE_TABLE(Kernels, table): declares `table` of every compiled set.
// TM_SELECT(table): a reference to the table of the chosen set.
#if defined(TM_HAS_neon)
#define TM_DECLARE_TABLE(type, table) \
  namespace neon { extern const type table; }
#define TM_SELECT(table) (mill::neon::table)
#else
#define TM_DECLARE_TABLE(type, table) \
  namespace avx2 { extern const type table; } \
  namespace avx512 { extern const type table; }
#define TM_SELECT(table) (mill::isa() == mill::Isa::avx2 ? mill::avx2::table : mill::avx512::table)
#endif
