#include "bench/overhead/sides.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

struct Functions {
#define TRAINER_NCCL(name, result, arguments) result(*name) arguments = nullptr;
#include "bench/trainer/nccl_functions.def"
#undef TRAINER_NCCL
};

Functions sides[2];
const Functions* taken = &sides[0];

template <typename F>
absl::Status Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr ? absl::OkStatus() : absl::NotFoundError(absl::StrCat("no ", name));
}

absl::Status Fill(void* library, Functions* functions) {
#define TRAINER_NCCL(name, result, arguments) \
  REWIRE_RETURN_IF_ERROR(Find(library, #name, &functions->name));
#include "bench/trainer/nccl_functions.def"
#undef TRAINER_NCCL
  return absl::OkStatus();
}

}  // namespace

absl::Status FindSides() {
  // RTLD_NEXT finds the preloaded shim, the next library in the loader's order.
  REWIRE_RETURN_IF_ERROR(Fill(RTLD_NEXT, &sides[static_cast<int>(Side::kRewire)]));
  const char* path = std::getenv("REWIRE_NCCL_LIBRARY");
  if (path == nullptr || *path == '\0') {
    return absl::InvalidArgumentError("REWIRE_NCCL_LIBRARY must name the real libnccl.so.2");
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(dlerror());
  REWIRE_RETURN_IF_ERROR(Fill(library, &sides[static_cast<int>(Side::kPlain)]));
  if (FileOf(Side::kRewire).find("librewire-preload.so") == std::string::npos ||
      FileOf(Side::kRewire) == FileOf(Side::kPlain)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shim is not in this process: NCCL's functions are in ",
                     FileOf(Side::kRewire), " and ", FileOf(Side::kPlain)));
  }
  return absl::OkStatus();
}

void Take(Side side) { taken = &sides[static_cast<int>(side)]; }

std::string FileOf(Side side) {
  Dl_info info{};
  const auto* function = reinterpret_cast<void*>(sides[static_cast<int>(side)].ncclAllReduce);
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace rewire::bench

using rewire::bench::taken;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) { return taken->ncclGetErrorString(result); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return taken->ncclGetUniqueId(id); }
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return taken->ncclCommInitRank(comm, ranks, id, rank);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return taken->ncclCommDestroy(comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return taken->ncclCommAbort(comm); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return taken->ncclCommGetAsyncError(comm, error);
}
ncclResult_t ncclGroupStart() { return taken->ncclGroupStart(); }
ncclResult_t ncclGroupEnd() { return taken->ncclGroupEnd(); }
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return taken->ncclAllReduce(in, out, count, type, op, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return taken->ncclReduceScatter(in, out, count, type, op, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return taken->ncclAllGather(in, out, count, type, comm, stream);
}

}  // extern "C"
