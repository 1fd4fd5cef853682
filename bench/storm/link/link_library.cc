// The linker sees this library instead of NCCL, so that the storm is an ordinary NCCL program and
// builds without NCCL. The library is never installed and on no library path: the loader finds the
// real library.
#include <cstdlib>

#define STORM_NCCL(name, result, arguments) \
  extern "C" __attribute__((visibility("default"))) void name() { std::abort(); }
#include "bench/storm/nccl_functions.def"
#undef STORM_NCCL
