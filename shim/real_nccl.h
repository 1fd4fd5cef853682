// The one real NCCL library of this process: where it is, and its functions by their pnccl* names.
//
// Found and loaded at the first call that needs it, from any thread; constant afterwards. The
// members of RealNccl are the functions of shim/gen/nccl_functions.txt without their prefix
// (real->AllReduce). After Real() none is nullptr: one that the library lacks logs its name and the
// library's version and returns ncclInvalidUsage (when there is no library at all: ncclSystemError
// and what was searched).
#pragma once

#include "shim/nccl_api_types.h"

namespace rewire::shim {

struct RealNccl {
#include "rewire_real_nccl_members.inc"
  int version = 0;        // ncclGetVersion's; 0: no library
  const char* path = "";  // of the file that was loaded

  // name without prefix: Has("CommRevoke").
  [[nodiscard]] bool Has(const char* name) const;
};

// Loads the library if that has not happened. Never nullptr.
const RealNccl* Real() noexcept;

// The same, for calls on a communicator of ours: the library is there, or it would not exist.
extern RealNccl real_functions;
inline const RealNccl& Functions() noexcept { return real_functions; }

}  // namespace rewire::shim
