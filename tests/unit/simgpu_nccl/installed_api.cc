// Compares our prototypes with those of an installed nccl.h: a difference does not compile.

#ifdef REWIRE_HAVE_NCCL_H

#include <nccl.h>

#include <type_traits>

#include "tests/simgpu/nccl/functions.h"

#if NCCL_VERSION_CODE >= 22800 && NCCL_VERSION_CODE < 22900
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define SIMNCCL_CHECK(result, name, parameters)                                         \
  static_assert(std::is_same_v<decltype(nccl##name), result parameters>, "nccl" #name); \
  static_assert(std::is_same_v<decltype(pnccl##name), result parameters>, "pnccl" #name);
SIMNCCL_EACH_FUNCTION(SIMNCCL_CHECK)
#endif

#endif  // REWIRE_HAVE_NCCL_H
