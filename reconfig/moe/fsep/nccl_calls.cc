#include "reconfig/moe/fsep/nccl_calls.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace rewire::moe::fsep {

absl::StatusOr<NcclCalls> NcclCalls::OfProcess() {
  void* const loaded = ::dlsym(RTLD_DEFAULT, "ncclSend") != nullptr
                           ? nullptr
                           : ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  NcclCalls calls;
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    void* const found = ::dlsym(loaded == nullptr ? RTLD_DEFAULT : loaded, name);
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
    if (found == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
  };
  find("ncclGetErrorString", &calls.GetErrorString);
  find("ncclCommCount", &calls.CommCount);
  find("ncclCommUserRank", &calls.CommUserRank);
  find("ncclGroupStart", &calls.GroupStart);
  find("ncclGroupEnd", &calls.GroupEnd);
  find("ncclSend", &calls.Send);
  find("ncclRecv", &calls.Recv);
  // The owner of a communicator keeps the library loaded.
  if (loaded != nullptr) ::dlclose(loaded);
  if (missing.empty()) return calls;
  return absl::FailedPreconditionError(
      absl::StrCat("NCCL is not loaded in this process, or lacks ", missing));
}

}  // namespace rewire::moe::fsep
