// Whether AMX may be used: by the processor, by the system, and by its own results.
#pragma once

namespace mill {

bool has_amx();    // by cpuid: tiles and their products of bytes
bool grant_amx();  // asks the system to let this process use tiles, which it must before the first one

}  // namespace mill
