// A small multi-process NCCL program: ranks N. Every rank prints a line with the results of its
// collectives; the test compares the lines with and without the shim.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rewire_nccl_api.h"

// Builds a program with profiling names for some functions, so that both kinds of names use one
// handle.
#ifdef PROFILING_NAMES
#define ncclCommInitRank pncclCommInitRank
#define ncclBroadcast pncclBroadcast
#define ncclSend pncclSend
#define ncclGroupEnd pncclGroupEnd
#define ncclCommUserRank pncclCommUserRank
#define ncclCommDestroy pncclCommDestroy
#endif

namespace {

constexpr size_t kElements = 1000;

#define MUST(call)                                                      \
  do {                                                                  \
    const int result_ = static_cast<int>(call);                         \
    if (result_ != 0) {                                                 \
      printf("%s: %d %s\n", #call, result_, ncclGetLastError(nullptr)); \
      exit(1);                                                          \
    }                                                                   \
  } while (false)

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
    void* context = nullptr;
    MUST(Cuda("cuInit", 0U));
    MUST(Cuda("cuDevicePrimaryCtxRetain", &context, device));
    MUST(Cuda("cuCtxSetCurrent", context));
    MUST(Cuda("cuStreamCreate", &stream, 1U));
    MUST(Cuda("cuMemAlloc_v2", &in, kElements * sizeof(float)));
    MUST(Cuda("cuMemAlloc_v2", &out, kElements * sizeof(float)));
  }
  void Fill(int rank, int round) const {
    std::vector<float> values(kElements);
    for (size_t i = 0; i < kElements; ++i) {
      values[i] = static_cast<float>(
          (i * 7 + static_cast<size_t>(rank) * 13 + static_cast<size_t>(round) * 3) % 101);
    }
    MUST(Cuda("cuMemcpyHtoD_v2", in, static_cast<const void*>(values.data()),
              kElements * sizeof(float)));
  }
  [[nodiscard]] uint64_t Result() const {
    std::vector<uint32_t> values(kElements);
    MUST(Cuda("cuStreamSynchronize", stream));
    MUST(
        Cuda("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), out, kElements * sizeof(float)));
    uint64_t hash = 1469598103934665603ULL;
    for (const uint32_t v : values) hash = (hash ^ v) * 1099511628211ULL;
    return hash;
  }
  [[nodiscard]] const void* send() const { return reinterpret_cast<const void*>(in); }
  [[nodiscard]] void* receive() const { return reinterpret_cast<void*>(out); }
  cudaStream_t stream = nullptr;
  uint64_t in = 0;
  uint64_t out = 0;
};

std::string Number(uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, " %016llx", static_cast<unsigned long long>(value));
  return text;
}

void RunRank(int rank, int ranks, const ncclUniqueId& id) {
  const Gpu gpu(rank);
  ncclComm_t comm = nullptr;
  MUST(ncclCommInitRank(&comm, ranks, id, rank));
  std::string line = "rank " + std::to_string(rank);
  for (int round = 0; round < 20; ++round) {
    gpu.Fill(rank, round);
    MUST(ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, comm, gpu.stream));
    line += Number(gpu.Result());
  }
  MUST(ncclBroadcast(gpu.send(), gpu.receive(), kElements, ncclFloat, 0, comm, gpu.stream));
  line += Number(gpu.Result());
  MUST(ncclGroupStart());
  MUST(ncclSend(gpu.send(), kElements, ncclFloat, (rank + 1) % ranks, comm, gpu.stream));
  MUST(ncclRecv(gpu.receive(), kElements, ncclFloat, (rank + ranks - 1) % ranks, comm, gpu.stream));
  MUST(ncclGroupEnd());
  line += Number(gpu.Result());
  ncclRedOp_t half;
  float scalar = 0.5F;
  MUST(ncclRedOpCreatePreMulSum(&half, &scalar, ncclFloat, ncclScalarHostImmediate, comm));
  MUST(ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, half, comm, gpu.stream));
  line += Number(gpu.Result());
  MUST(ncclRedOpDestroy(half, comm));
  ncclComm_t child = nullptr;
  MUST(ncclCommSplit(comm, rank % 2, -rank, &child, nullptr));
  int count = 0;
  int place = 0;
  MUST(ncclCommCount(child, &count));
  MUST(ncclCommUserRank(child, &place));
  MUST(ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclMax, child, gpu.stream));
  line += Number(gpu.Result()) + " " + std::to_string(count) + " " + std::to_string(place);
  MUST(ncclCommDestroy(child));
  MUST(ncclCommDestroy(comm));
  // A single write, so that the lines of the ranks do not mix.
  line += "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > 8) return 2;
  // Processes are forked first: a driver does not survive a fork. Rank 0 makes the id and sends it
  // to the others.
  std::vector<int> to_rank;
  std::vector<pid_t> children;
  for (int r = 1; r < ranks; ++r) {
    int ends[2];
    if (pipe(ends) != 0) return 2;
    const pid_t child = fork();
    if (child == 0) {
      close(ends[1]);
      ncclUniqueId id;
      if (read(ends[0], &id, sizeof id) != sizeof id) _exit(3);
      RunRank(r, ranks, id);
      _exit(0);
    }
    close(ends[0]);
    to_rank.push_back(ends[1]);
    children.push_back(child);
  }
  ncclUniqueId id;
  MUST(ncclGetUniqueId(&id));
  for (const int fd : to_rank) {
    if (write(fd, &id, sizeof id) != sizeof id) return 2;
    close(fd);
  }
  RunRank(0, ranks, id);
  int bad = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    bad += status != 0 ? 1 : 0;
  }
  return bad;
}
