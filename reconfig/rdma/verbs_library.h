// libibverbs as a table of functions, resolved at run time, for the verbs driver. Thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "absl/status/status.h"

namespace rewire::rdma {

// One member per row of verbs_library.def. Immutable once loaded, and never unloaded, because the
// providers' libraries keep threads and fork hooks. Entries that are not required may be null.
struct VerbsLibrary {
#define REWIRE_VERBS_ENTRY(member, symbol, version, required, result, arguments) \
  result(*member) arguments = nullptr;
#include "reconfig/rdma/verbs_library.def"
#undef REWIRE_VERBS_ENTRY

  // NotFound if the library does not exist; FailedPrecondition if it lacks a required entry.
  [[nodiscard]] static absl::Status Load(const std::string& file, VerbsLibrary* library);

  // The header's inline function, without its link-time dependency on the old entry.
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attributes) const;
};

}  // namespace rewire::rdma
