#include "bench/trainer/rewire_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/abi/core_file.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

template <typename F>
absl::Status Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("librewire.so lacks ", name));
}

}  // namespace

absl::StatusOr<RewireLibrary> RewireLibrary::Load() {
  void* library = dlopen(kCoreFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return absl::NotFoundError(absl::StrCat("REWIRE_SOCKET is set, but librewire.so: ",
                                            reason != nullptr ? reason : "unknown reason"));
  }
  RewireLibrary l;
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireResultString", &l.ResultString));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireLastError", &l.LastError));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireAttach", &l.Attach));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireDetach", &l.Detach));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireWorld", &l.World));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireUniqueId", &l.UniqueId));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireSetParallel", &l.SetParallel));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireRegisterTensor", &l.RegisterTensor));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireUpdate", &l.Update));
  REWIRE_RETURN_IF_ERROR(Find(library, "rewireRecover", &l.Recover));
  return l;
}

}  // namespace rewire::trainer
