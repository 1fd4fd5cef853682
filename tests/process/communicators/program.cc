// One rank of a program with all kinds of communicators: communicators_program FOLDER [MODE]. Every
// result is checked.
//
// MODE "all" (default): the world; pairs (split by color); a split without the last rank; a
// communicator used only at a command; a communicator for sends and receives alone; a non-blocking
// communicator. MODE "blocking": the same without the non-blocking communicator. MODE "threads":
// one communicator of which this process drives two ranks. MODE "graphs": the world alone. MODE
// "captures": the world and an idle communicator. MODE "rejected": the same. Rank 0 follows the
// files in FOLDER: use-K (the idle communicator is used for the K-th time; in mode graphs, an
// operation is captured for odd K, and the graphs are released for even K; RunCaptures() lists the
// uses of modes captures and rejected) and stop.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "rewire_nccl_api.h"

namespace {

constexpr size_t kElements = 64;
constexpr int kUse = 1;
constexpr int kStop = 2;
constexpr std::chrono::seconds kPatience(60);

int rank = 0;
int ranks = 0;
std::string folder;

[[noreturn]] void Die(const std::string& why) {
  printf("rank %d failed: %s\n", rank, why.c_str());
  fflush(stdout);
  _exit(1);
}

void Must(int result, const char* what) {
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

bool Exists(const std::string& name) {
  struct stat info {};
  return stat((folder + "/" + name).c_str(), &info) == 0;
}

// Rank 0 makes the id of a communicator; the others read it from a file.
ncclUniqueId Share(const std::string& name) {
  const std::string path = folder + "/id-" + name;
  ncclUniqueId id;
  if (rank == 0) {
    MUST(ncclGetUniqueId(&id));
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
void Settle(ncclComm_t comm) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    MUST(ncclCommGetAsyncError(comm, &state));
    if (std::chrono::steady_clock::now() > until) Die("a communicator stays in progress");
  }
  Must(static_cast<int>(state), "the asynchronous state");
}

ncclComm_t Init(const std::string& name, bool blocking = true) {
  const ncclUniqueId id = Share(name);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  if (blocking || result != ncclInProgress) Must(static_cast<int>(result), "init");
  if (!blocking) Settle(comm);
  return comm;
}

float Sum(const Gpu& gpu, ncclComm_t comm, float value, bool blocking = true) {
  gpu.Give(value);
  const ncclResult_t result =
      ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, comm, gpu.stream);
  if (blocking || result != ncclInProgress) Must(static_cast<int>(result), "ncclAllReduce");
  if (!blocking) Settle(comm);
  return gpu.Take();
}

void Expect(float got, float want, const char* what) {
  if (got == want) return;
  Die(std::string(what) + " gave " + std::to_string(got) + " instead of " + std::to_string(want));
}

void Ring(const Gpu& gpu, ncclComm_t comm, int step) {
  gpu.Give(static_cast<float>(100 * rank + step % 50));
  const int before = (rank + ranks - 1) % ranks;
  MUST(ncclGroupStart());
  MUST(ncclSend(gpu.send(), kElements, ncclFloat, (rank + 1) % ranks, comm, gpu.stream));
  MUST(ncclRecv(gpu.receive(), kElements, ncclFloat, before, comm, gpu.stream));
  MUST(ncclGroupEnd());
  Expect(gpu.Take(), static_cast<float>(100 * before + step % 50), "the ring");
}

void RunAll(bool with_non_blocking) {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  ncclComm_t pair = nullptr;
  MUST(ncclCommSplit(world, rank / 2, rank, &pair, nullptr));
  ncclComm_t most = nullptr;
  const bool in = rank + 1 < ranks;
  MUST(ncclCommSplit(world, in ? 0 : NCCL_SPLIT_NOCOLOR, rank, &most, nullptr));
  if (in != (most != nullptr)) Die("the split without a color");
  ncclComm_t idle = Init("idle");
  ncclComm_t sends = Init("sends");
  ncclComm_t unblocked = with_non_blocking ? Init("non-blocking", false) : nullptr;
  const float all = static_cast<float>(ranks * (ranks - 1)) / 2;
  Expect(Sum(gpu, idle, static_cast<float>(rank)), all, "the idle communicator");
  // Without a send before the rebuild, the communicator counts as idle and soon switches.
  Ring(gpu, sends, 0);
  printf("rank %d ready\n", rank);
  fflush(stdout);
  int used = 0;
  for (int step = 0;; ++step) {
    usleep(2000);  // computation time: the next generations' builds also need the CPUs
    // Rank 0's value tells all ranks the next action.
    int command = 0;
    if (rank == 0 && Exists("use-" + std::to_string(used + 1))) command = kUse;
    if (rank == 0 && Exists("stop")) command = kStop;
    const float sum = Sum(gpu, world, static_cast<float>(rank + 1000 * command));
    command = static_cast<int>(sum) / 1000;
    Expect(sum, all + static_cast<float>(1000 * command), "the world");
    const int first = rank / 2 * 2;
    const float mine = first + 1 < ranks ? static_cast<float>(2 * first + 1 + 2 * (step % 10))
                                         : static_cast<float>(first + step % 10);
    Expect(Sum(gpu, pair, static_cast<float>(rank + step % 10)), mine, "a pair");
    if (most != nullptr && step % 4 == 0) {
      Expect(Sum(gpu, most, 1), static_cast<float>(ranks - 1), "all but the last");
    }
    if (step % 2 == 0) Ring(gpu, sends, step);
    if (unblocked != nullptr && step % 3 == 0) {
      Expect(Sum(gpu, unblocked, static_cast<float>(rank), false), all, "the non-blocking one");
    }
    if (command == kStop) break;
    if (command != kUse) continue;
    ++used;
    for (int i = 0; i < 10; ++i) {
      Expect(Sum(gpu, idle, static_cast<float>(rank + i)), all + static_cast<float>(i * ranks),
             "the idle communicator");
    }
    printf("rank %d used it %d\n", rank, used);
    fflush(stdout);
  }
  for (ncclComm_t comm : {pair, most, idle, sends, world}) {
    if (comm != nullptr) MUST(ncclCommDestroy(comm));
  }
  if (unblocked != nullptr) {
    const ncclResult_t result = ncclCommFinalize(unblocked);
    if (result != ncclInProgress) Must(static_cast<int>(result), "ncclCommFinalize");
    Settle(unblocked);
    MUST(ncclCommDestroy(unblocked));
  }
  printf("rank %d done\n", rank);
  fflush(stdout);
}

void RunThreads() {
  const ncclUniqueId id = Share("threads");
  const auto run = [&](int thread) {
    const Gpu gpu(2 * rank + thread);
    ncclComm_t comm = nullptr;
    MUST(ncclCommInitRank(&comm, 2 * ranks, id, 2 * rank + thread));
    if (thread == 0) {
      printf("rank %d ready\n", rank);
      fflush(stdout);
    }
    for (;;) {
      usleep(2000);
      const bool stop = rank == 0 && thread == 0 && Exists("stop");
      if (Sum(gpu, comm, stop ? 1.0F : 0.0F) > 0) break;
    }
    MUST(ncclCommDestroy(comm));
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

// Captures one operation in a stream of its own. NCCL rejects an operation with an unknown type.
void Capture(const Gpu& gpu, ncclComm_t comm, bool grouped, ncclDataType_t type = ncclFloat) {
  cudaStream_t stream = nullptr;
  void* graph = nullptr;
  MUST(Cuda("cuStreamCreate", &stream, 1U));
  MUST(Cuda("cuStreamBeginCapture_v2", stream, 0));
  if (grouped) MUST(ncclGroupStart());
  ncclResult_t result =
      ncclAllReduce(gpu.send(), gpu.receive(), kElements, type, ncclSum, comm, stream);
  if (grouped) result = ncclGroupEnd();
  if (result != (type == ncclFloat ? ncclSuccess : ncclInvalidArgument)) {
    Die("a captured operation gave " + std::to_string(result) + ": " + ncclGetLastError(comm));
  }
  MUST(Cuda("cuStreamEndCapture", stream, &graph));
  MUST(Cuda("cuGraphDestroy", graph));
  MUST(Cuda("cuStreamDestroy_v2", stream));
}

void ReleaseGraphs() {
  // The preloaded file has opened the library.
  void* library = dlopen(REWIRE_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) Die(dlerror());
  auto* released = reinterpret_cast<int (*)()>(dlsym(library, "rewireGraphsReleased"));
  if (released == nullptr) Die(dlerror());
  MUST(released());
}

void RunGraphs() {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  printf("rank %d ready\n", rank);
  fflush(stdout);
  for (int used = 0;;) {
    usleep(2000);
    int command = 0;
    if (rank == 0 && Exists("use-" + std::to_string(used + 1))) command = kUse;
    if (rank == 0 && Exists("stop")) command = kStop;
    command = static_cast<int>(Sum(gpu, world, static_cast<float>(command)));
    if (command == kStop) break;
    if (command != kUse) continue;
    ++used;
    if (used % 2 == 1) {
      Capture(gpu, world, used > 1);
    } else {
      ReleaseGraphs();
    }
    printf("rank %d used it %d\n", rank, used);
    fflush(stdout);
  }
  MUST(ncclCommDestroy(world));
  printf("rank %d done\n", rank);
  fflush(stdout);
}

// The uses of the idle communicator: 1: a captured operation; 2: an operation; 3: the graphs are
// released. With `rejected`: a captured operation that NCCL rejects, alone and in a group.
void RunCaptures(bool rejected) {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  ncclComm_t idle = Init("idle");
  Sum(gpu, idle, 0.0F);
  printf("rank %d ready\n", rank);
  fflush(stdout);
  for (int used = 0;;) {
    usleep(2000);
    int command = 0;
    if (rank == 0 && Exists("use-" + std::to_string(used + 1))) command = kUse;
    if (rank == 0 && Exists("stop")) command = kStop;
    command = static_cast<int>(Sum(gpu, world, static_cast<float>(command)));
    if (command == kStop) break;
    if (command != kUse) continue;
    ++used;
    if (rejected) {
      for (const bool grouped : {false, true}) {
        Capture(gpu, idle, grouped, static_cast<ncclDataType_t>(99));
      }
    } else if (used == 1) {
      Capture(gpu, idle, false);
    } else if (used == 2) {
      if (static_cast<int>(Sum(gpu, idle, 1.0F)) != ranks) Die("a wrong sum");
    } else {
      ReleaseGraphs();
    }
    printf("rank %d used it %d\n", rank, used);
    fflush(stdout);
  }
  MUST(ncclCommDestroy(idle));
  MUST(ncclCommDestroy(world));
  printf("rank %d done\n", rank);
  fflush(stdout);
}

int Number(const char* name) {
  const char* text = getenv(name);
  if (text == nullptr) Die(std::string(name) + " is not set");
  return atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  folder = argv[1];
  const std::string mode = argc > 2 ? argv[2] : "all";
  rank = Number("RANK");
  ranks = Number("WORLD_SIZE");
  if (mode == "threads") {
    RunThreads();
  } else if (mode == "graphs") {
    RunGraphs();
  } else if (mode == "captures" || mode == "rejected") {
    RunCaptures(mode == "rejected");
  } else {
    RunAll(mode == "all");
  }
  return 0;
}
