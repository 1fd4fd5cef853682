// One process of a program on the simulated GPU: its place in the job, its GPUs, and unique ids
// that the processes share through files. A failure prints a line and ends the process. For the
// programs of this folder; owned by the thread that makes it, except the place, which is constant.
#pragma once

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "rewire_nccl_api.h"

namespace rewire {

inline constexpr size_t kElements = 64;
inline constexpr std::chrono::seconds kPatience(60);

inline int rank = 0;   // of this process
inline int ranks = 0;  // the number of processes
inline std::string folder;

[[noreturn]] inline void Die(const std::string& why) {
  printf("rank %d failed: %s\n", rank, why.c_str());
  fflush(stdout);
  _exit(1);
}

inline void Must(int result, const char* what) {
  if (result == 0) return;
  Die(std::string(what) + " gave " + std::to_string(result) + ": " + ncclGetLastError(nullptr));
}
#define MUST(call) Must(static_cast<int>(call), #call)

// The driver's functions by their documented names.
template <typename... Arguments>
int Cuda(const char* name, Arguments... arguments) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto* function =
      driver == nullptr ? nullptr : reinterpret_cast<int (*)(Arguments...)>(dlsym(driver, name));
  return function == nullptr ? -1 : function(arguments...);
}

struct Gpu {
  explicit Gpu(int device) {
    MUST(Cuda("cuInit", 0U));
    MUST(Cuda("cuDevicePrimaryCtxRetain", &context, device));
    Enter();
    MUST(Cuda("cuStreamCreate", &stream, 1U));
    MUST(Cuda("cuMemAlloc_v2", &in, kElements * sizeof(float)));
    MUST(Cuda("cuMemAlloc_v2", &out, kElements * sizeof(float)));
  }
  void Enter() const { MUST(Cuda("cuCtxSetCurrent", context)); }
  void Give(float value) const {
    const std::vector<float> values(kElements, value);
    MUST(Cuda("cuMemcpyHtoD_v2", in, static_cast<const void*>(values.data()),
              kElements * sizeof(float)));
  }
  [[nodiscard]] float Take() const {
    std::vector<float> values(kElements);
    MUST(Cuda("cuStreamSynchronize", stream));
    MUST(
        Cuda("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), out, kElements * sizeof(float)));
    for (const float v : values) {
      if (v != values[0]) Die("the elements differ");
    }
    return values[0];
  }
  [[nodiscard]] const void* send() const { return reinterpret_cast<const void*>(in); }
  [[nodiscard]] void* receive() const { return reinterpret_cast<void*>(out); }
  void* context = nullptr;
  cudaStream_t stream = nullptr;
  uint64_t in = 0;
  uint64_t out = 0;
};

inline bool Exists(const std::string& name) {
  struct stat info {};
  return stat((folder + "/" + name).c_str(), &info) == 0;
}

// Rank 0 makes the id of a communicator; the others read it from a file.
inline ncclUniqueId Share(
    const std::string& name,
    const std::function<ncclResult_t(ncclUniqueId*)>& make = ncclGetUniqueId) {
  const std::string path = folder + "/id-" + name;
  ncclUniqueId id;
  if (rank == 0) {
    MUST(make(&id));
    std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    if (rename((path + ".new").c_str(), path.c_str()) != 0) Die("rename " + path);
    return id;
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!Exists("id-" + name)) {
    if (std::chrono::steady_clock::now() > until) Die("no id of " + name);
    usleep(2000);
  }
  std::ifstream(path, std::ios::binary).read(id.internal, sizeof id.internal);
  return id;
}

// Waits until the communicator's state is no longer ncclInProgress.
inline void Settle(ncclComm_t comm) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    MUST(ncclCommGetAsyncError(comm, &state));
    if (std::chrono::steady_clock::now() > until) Die("a communicator stays in progress");
  }
  Must(static_cast<int>(state), "the asynchronous state");
}

inline void Expect(float got, float want, const char* what) {
  if (got == want) return;
  Die(std::string(what) + " gave " + std::to_string(got) + " instead of " + std::to_string(want));
}

inline int Number(const char* name) {
  const char* text = getenv(name);
  if (text == nullptr) Die(std::string(name) + " is not set");
  return atoi(text);
}

// Reads the place in the job from the launcher's variables.
inline void TakePlace(const char* shared_folder) {
  folder = shared_folder;
  rank = Number("RANK");
  ranks = Number("WORLD_SIZE");
}

}  // namespace rewire
