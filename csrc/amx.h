// Whether AMX may be used: by the processor, by the system, and by its own results and their time.
#pragma once

namespace mill {

bool has_amx();  // by cpuid: tiles and their products of bytes

// Why it cannot be used nevertheless, in words. Null: it can, and this process may from now on.
const char* refuses_amx();
const char* refuses_emulated_amx();

bool amx_pays();  // whether its products are faster here than those of AVX-512; takes a millisecond

}  // namespace mill
