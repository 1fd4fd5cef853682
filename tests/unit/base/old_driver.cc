// A CUDA driver with only the entries that Rewire needs; every entry does nothing.
#include "reconfig/abi/cuda_types.h"

#define REWIRE_CUDA_ENTRY(member, name, symbol, version, arguments)         \
  __attribute__((visibility("default"))) CUresult member() __asm__(symbol); \
  CUresult member() { return CUDA_SUCCESS; }
#define REWIRE_CUDA_OPTIONAL(member, name, symbol, version, arguments)
#include "reconfig/base/cuda_driver.def"
#undef REWIRE_CUDA_ENTRY
