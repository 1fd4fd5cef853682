#include "bench/net/nccl_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace rewire::bench {
namespace {

template <typename Function>
absl::Status Find(void* library, const char* name, Function* out) {
  void* const found = dlsym(library, name);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("dlsym ", name, ": ", dlerror()));
  *out = reinterpret_cast<Function>(found);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NcclLibrary> OpenNccl(const std::string& folder) {
  std::vector<std::string> files = {"libcuda.so.1"};
  std::error_code error_code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error_code)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("libcudart.so.")) files.push_back(name);
  }
  files.insert(files.end(), {"libnvidia-ml.so.1", "libnccl.so.2"});
  // The order matters: the next library, or NCCL, finds each library by its name.
  void* nccl = nullptr;
  for (const std::string& file : files) {
    nccl = dlopen((folder + "/" + file).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (nccl == nullptr) return absl::NotFoundError(absl::StrCat("dlopen: ", dlerror()));
  }
  NcclLibrary out{};
  const std::string error = CudaDriver::Load(folder + "/libcuda.so.1", &out.cuda);
  if (!error.empty()) return absl::FailedPreconditionError(error);
  absl::Status found = absl::OkStatus();
  found.Update(Find(nccl, "ncclGetVersion", &out.GetVersion));
  found.Update(Find(nccl, "ncclGetErrorString", &out.GetErrorString));
  found.Update(Find(nccl, "ncclGetUniqueId", &out.GetUniqueId));
  found.Update(Find(nccl, "ncclCommInitRank", &out.CommInitRank));
  found.Update(Find(nccl, "ncclCommGetAsyncError", &out.CommGetAsyncError));
  found.Update(Find(nccl, "ncclCommDestroy", &out.CommDestroy));
  found.Update(Find(nccl, "ncclAllReduce", &out.AllReduce));
  found.Update(Find(nccl, "ncclSend", &out.Send));
  found.Update(Find(nccl, "ncclRecv", &out.Recv));
  if (!found.ok()) return found;
  return out;
}

}  // namespace rewire::bench
