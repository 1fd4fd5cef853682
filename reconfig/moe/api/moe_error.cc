// Implements rewireMoeLastError(). librewire-moe.so and librewire.so each have their own last
// error.
#include "reconfig/api/arguments.h"
#include "rewire/rewire_moe.h"

extern "C" const char* rewireMoeLastError(void) noexcept { return rewire::LastError().c_str(); }
