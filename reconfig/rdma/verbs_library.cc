// Resolves the functions of libibverbs; see verbs_library.h.
#include "reconfig/rdma/verbs_library.h"

#include <dlfcn.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace rewire::rdma {

absl::Status VerbsLibrary::Load(const std::string& file, VerbsLibrary* library) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return absl::NotFoundError(absl::StrCat("the verbs library ", file, " cannot be loaded: ",
                                            reason != nullptr ? reason : "unknown reason"));
  }
  std::string missing;
#define REWIRE_VERBS_ENTRY(member, symbol, version, required, result, arguments)              \
  library->member = reinterpret_cast<result(*) arguments>(::dlvsym(handle, symbol, version)); \
  if ((required) && library->member == nullptr)                                               \
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", symbol, "@", version);
#include "reconfig/rdma/verbs_library.def"
#undef REWIRE_VERBS_ENTRY
  if (missing.empty()) return absl::OkStatus();
  ::dlclose(handle);
  return absl::FailedPreconditionError(
      absl::StrCat("the verbs library ", file, " lacks ", missing));
}

int VerbsLibrary::QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attributes) const {
  std::memset(attributes, 0, sizeof *attributes);
  verbs_context* extended = verbs_get_ctx_op(context, query_port);
  if (extended != nullptr) {
    return extended->query_port(context, port, attributes, sizeof *attributes);
  }
  return QueryPortOld(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
}

}  // namespace rewire::rdma
