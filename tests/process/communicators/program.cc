// One rank of a program with all kinds of communicators: communicators_program FOLDER [MODE]. Every
// result is checked.
//
// MODE "all" (default): the world; pairs (split by color); a split without the last rank; a
// communicator used only at a command; a communicator for sends and receives alone; a non-blocking
// communicator. MODE "blocking": the same without the non-blocking communicator. MODE "grouped":
// the same, and rank 0 alone puts each sum into a group. MODE "graphs": the world alone. MODE
// "captures": the world and an idle communicator. MODE "rejected" and MODE "streams": the same.
// Rank 0 follows the files in FOLDER: use-K (the idle communicator is used for the K-th time; in
// mode graphs, an operation is captured for odd K, and the graphs are released for even K;
// RunIdle() lists the uses of the last three modes) and stop.
#include "tests/process/communicators/program_process.h"

namespace rewire {
namespace {

constexpr int kUse = 1;
constexpr int kStop = 2;

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

bool groups_alone = false;  // this process puts each sum into a group, and the others do not

float Sum(const Gpu& gpu, ncclComm_t comm, float value, bool blocking = true) {
  gpu.Give(value);
  if (groups_alone) MUST(ncclGroupStart());
  const ncclResult_t result =
      ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, comm, gpu.stream);
  if (blocking || result != ncclInProgress) Must(static_cast<int>(result), "ncclAllReduce");
  if (groups_alone) MUST(ncclGroupEnd());
  if (!blocking) Settle(comm);
  return gpu.Take();
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

// One operation in a stream that is destroyed after it.
void UseAnotherStream(const Gpu& gpu, ncclComm_t comm) {
  Gpu other = gpu;
  MUST(Cuda("cuStreamCreate", &other.stream, 1U));
  if (static_cast<int>(Sum(other, comm, 1.0F)) != ranks) Die("a wrong sum");
  MUST(Cuda("cuStreamDestroy_v2", other.stream));
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
// released. In mode rejected: a captured operation that NCCL rejects, alone and in a group. In mode
// streams: an operation in a stream of its own.
void RunIdle(const std::string& mode) {
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
    if (mode == "streams") {
      UseAnotherStream(gpu, idle);
    } else if (mode == "rejected") {
      for (const bool grouped : {false, true}) {
        Capture(gpu, idle, grouped, static_cast<ncclDataType_t>(15));
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

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  rewire::TakePlace(argv[1]);
  const std::string mode = argc > 2 ? argv[2] : "all";
  if (mode == "graphs") {
    rewire::RunGraphs();
  } else if (mode == "captures" || mode == "rejected" || mode == "streams") {
    rewire::RunIdle(mode);
  } else {
    rewire::groups_alone = mode == "grouped" && rewire::rank == 0;
    rewire::RunAll(mode == "all");
  }
  return 0;
}
