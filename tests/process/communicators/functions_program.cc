// One rank of a program that uses the rarer functions of NCCL: functions_program FOLDER MODE. Every
// result is checked.
//
// MODE "collectives": every collective, also in empty, nested and failing groups. MODE "origins":
// communicators of ncclCommInitRankScalable, and of splits and shrinks that share their parent's
// resources. MODE "many": 200 splits, most of them
// idle. MODE "suspended": the first command suspends a communicator,
// the second resumes it. MODE "shrunk": the command makes all ranks but the last leave a stuck
// operation by ncclCommShrink with NCCL_SHRINK_ABORT. MODE "revoked": the command revokes a
// communicator. MODE "watched": a thread uses a communicator; at each command its peer stalls, and
// the main thread, as a watchdog does, aborts the communicator and makes another one. MODE "grown":
// the first command makes a communicator of all ranks by ncclCommGrow from one without the last,
// the second destroys the new one. The files in FOLDER are those of command_loop.h.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/process/communicators/command_loop.h"

namespace rewire {
namespace {

constexpr int kSplits = 200;
constexpr size_t kUsedSplits = 8;     // a communicator that was used has 67 MB of NCCL's operations
constexpr int kSuspendMemory = 0x01;  // NCCL_SUSPEND_MEM, since NCCL 2.29.7

// ---- collectives
// ----------------------------------------------------------------------------------

// A buffer with a row of kElements for each rank.
class Rows {
 public:
  Rows() { MUST(Cuda("cuMemAlloc_v2", &memory_, Bytes())); }
  [[nodiscard]] void* get() const { return reinterpret_cast<void*>(memory_); }
  // The row of rank r gets the value of(r).
  void Give(const std::function<int(int)>& of) const {
    std::vector<float> values;
    for (int r = 0; r < ranks; ++r)
      values.insert(values.end(), kElements, static_cast<float>(of(r)));
    MUST(Cuda("cuMemcpyHtoD_v2", memory_, static_cast<const void*>(values.data()), Bytes()));
  }
  void Check(const Gpu& gpu, const std::function<int(int)>& of, const char* what) const {
    std::vector<float> values(kElements * static_cast<size_t>(ranks));
    MUST(Cuda("cuStreamSynchronize", gpu.stream));
    MUST(Cuda("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), memory_, Bytes()));
    for (size_t i = 0; i < values.size(); ++i) {
      Expect(values[i], static_cast<float>(of(static_cast<int>(i / kElements))), what);
    }
  }

 private:
  static size_t Bytes() { return kElements * static_cast<size_t>(ranks) * sizeof(float); }
  uint64_t memory_ = 0;
};

void UseEveryCollective(const Gpu& gpu, const Rows& in, const Rows& out, ncclComm_t comm,
                        int step) {
  const int root = step % ranks;
  const int mine = step % 50 + 100 * rank;
  const auto of = [step](int r) { return step % 50 + 100 * r; };
  in.Give([&](int r) { return mine + r; });
  MUST(ncclAlltoAll(in.get(), out.get(), kElements, ncclFloat, comm, gpu.stream));
  out.Check(
      gpu, [&](int r) { return of(r) + rank; }, "ncclAlltoAll");
  gpu.Give(static_cast<float>(mine));
  MUST(ncclGather(gpu.send(), out.get(), kElements, ncclFloat, root, comm, gpu.stream));
  if (rank == root) out.Check(gpu, of, "ncclGather");
  MUST(ncclAllGather(gpu.send(), out.get(), kElements, ncclFloat, comm, gpu.stream));
  out.Check(gpu, of, "ncclAllGather");
  MUST(ncclScatter(in.get(), gpu.receive(), kElements, ncclFloat, root, comm, gpu.stream));
  Expect(gpu.Take(), static_cast<float>(of(root) + rank), "ncclScatter");
  MUST(ncclReduceScatter(in.get(), gpu.receive(), kElements, ncclFloat, ncclSum, comm, gpu.stream));
  const int sum = ranks * (step % 50) + 100 * SumOfRanks(ranks);
  Expect(gpu.Take(), static_cast<float>(sum + ranks * rank), "ncclReduceScatter");
  MUST(
      ncclReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclMax, root, comm, gpu.stream));
  if (rank == root) Expect(gpu.Take(), static_cast<float>(of(ranks - 1)), "ncclReduce");
  MUST(ncclBroadcast(gpu.send(), gpu.receive(), kElements, ncclFloat, root, comm, gpu.stream));
  Expect(gpu.Take(), static_cast<float>(of(root)), "ncclBroadcast");
}

// Nested groups with operations of both communicators, an empty group, and a group that NCCL
// refuses.
void UseGroups(const Gpu& gpu, const Rows& out, ncclComm_t first, ncclComm_t second, int step) {
  const int mine = step % 50 + rank;
  gpu.Give(static_cast<float>(mine));
  MUST(ncclGroupStart());
  MUST(ncclGroupEnd());
  MUST(ncclGroupStart());
  MUST(ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, first, gpu.stream));
  MUST(ncclGroupStart());
  MUST(ncclAllGather(gpu.send(), out.get(), kElements, ncclFloat, second, gpu.stream));
  MUST(ncclGroupStart());
  MUST(ncclGroupEnd());
  MUST(ncclGroupEnd());
  MUST(ncclGroupEnd());
  Expect(gpu.Take(), static_cast<float>(ranks * (step % 50) + SumOfRanks(ranks)), "a nested group");
  out.Check(
      gpu, [&](int r) { return step % 50 + r; }, "the inner group");
  MUST(ncclGroupStart());
  const ncclResult_t refused =
      ncclAllReduce(gpu.send(), gpu.receive(), kElements, static_cast<ncclDataType_t>(99), ncclSum,
                    first, gpu.stream);
  const ncclResult_t ended = ncclGroupEnd();
  if (refused != ncclInvalidArgument || ended != ncclInvalidArgument) {
    Die("a group with an unknown type gave " + std::to_string(refused) + " and " +
        std::to_string(ended));
  }
}

void RunCollectives() {
  const Gpu gpu(rank);
  const Rows in;
  const Rows out;
  ncclComm_t world = Init("world");
  ncclComm_t second = Init("second");
  int step = 0;
  Loop(gpu, world, [&](int) {
    UseEveryCollective(gpu, in, out, step % 2 == 0 ? world : second, step);
    UseGroups(gpu, out, world, second, step);
    ++step;
  });
  MUST(ncclCommDestroy(second));
  MUST(ncclCommDestroy(world));
}

// ---- communicators
// --------------------------------------------------------------------------------

void RunOrigins() {
  const Gpu gpu(rank);
  ncclUniqueId id = Share("world");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = 1;
  config.shrinkShare = 1;
  ncclComm_t world = nullptr;
  MUST(ncclCommInitRankScalable(&world, ranks, rank, 1, &id, &config));
  ncclComm_t reversed = nullptr;
  MUST(ncclCommSplit(world, 0, ranks - rank, &reversed, &config));
  ncclComm_t most = nullptr;
  int last = ranks - 1;
  if (rank != last) MUST(ncclCommShrink(world, &last, 1, &most, &config, NCCL_SHRINK_DEFAULT));
  Loop(gpu, world, [&](int) {
    const float mine = static_cast<float>(rank);
    Expect(Sum(gpu, reversed, mine), static_cast<float>(SumOfRanks(ranks)), "the split");
    if (rank == last) return;
    Expect(Sum(gpu, most, mine), static_cast<float>(SumOfRanks(last)), "the shrunk one");
  });
  if (most != nullptr) MUST(ncclCommDestroy(most));
  MUST(ncclCommDestroy(reversed));
  MUST(ncclCommDestroy(world));
}

void RunMany() {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  std::vector<ncclComm_t> all(kSplits);
  for (ncclComm_t& comm : all) MUST(ncclCommSplit(world, 0, rank, &comm, nullptr));
  size_t step = 0;
  Loop(gpu, world, [&](int) {
    for (int i = 0; i < 10; ++i) {
      const float more = static_cast<float>(step % 10);
      Expect(Sum(gpu, all[step++ % kUsedSplits], static_cast<float>(rank) + more),
             static_cast<float>(SumOfRanks(ranks)) + static_cast<float>(ranks) * more,
             "one of many");
    }
  });
  for (ncclComm_t comm : all) MUST(ncclCommDestroy(comm));
  MUST(ncclCommDestroy(world));
}

void RunSuspended() {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  ncclComm_t other = Init("other");
  bool suspended = false;
  Loop(gpu, world, [&](int command) {
    if (command == 1) {
      MUST(ncclCommSuspend(other, kSuspendMemory));
      if (ncclCommSuspend(other, kSuspendMemory) != ncclInvalidUsage) Die("suspended twice");
      suspended = true;
    } else if (command == 2) {
      MUST(ncclCommResume(other));
      if (ncclCommResume(other) != ncclInvalidUsage) Die("resumed twice");
      suspended = false;
    }
    if (suspended) return;
    Expect(Sum(gpu, other, static_cast<float>(rank)), static_cast<float>(SumOfRanks(ranks)),
           "the other one");
  });
  MUST(ncclCommDestroy(other));
  MUST(ncclCommDestroy(world));
}

void RunShrunk() {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  ncclComm_t parent = Init("parent");
  ncclComm_t child = nullptr;
  int last = ranks - 1;
  Loop(gpu, world, [&](int command) {
    if (command == 0 && parent != nullptr && child == nullptr) {
      Expect(Sum(gpu, parent, static_cast<float>(rank)), static_cast<float>(SumOfRanks(ranks)),
             "the parent");
    } else if (command == 1 && rank == last) {
      MUST(ncclCommAbort(parent));
      parent = nullptr;
    } else if (command == 1) {
      MUST(ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, parent,
                         gpu.stream));
      MUST(ncclCommShrink(parent, &last, 1, &child, nullptr, NCCL_SHRINK_ABORT));
      MUST(Cuda("cuStreamSynchronize", gpu.stream));
    }
    if (child == nullptr) return;
    Expect(Sum(gpu, child, static_cast<float>(rank)), static_cast<float>(SumOfRanks(last)),
           "the child");
  });
  if (child != nullptr) {
    MUST(ncclCommDestroy(child));
    MUST(ncclCommAbort(parent));
  }
  MUST(ncclCommDestroy(world));
}

void RunRevoked() {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  ncclComm_t other = Init("other");
  bool revoked = false;
  Loop(gpu, world, [&](int command) {
    if (command == 1) {
      MUST(ncclCommRevoke(other, NCCL_REVOKE_DEFAULT));
      revoked = true;
    }
    if (!revoked) {
      Expect(Sum(gpu, other, static_cast<float>(rank)), static_cast<float>(SumOfRanks(ranks)),
             "the other one");
    } else if (ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, other,
                             gpu.stream) == ncclSuccess) {
      Die("a revoked communicator accepts an operation");
    }
  });
  MUST(ncclCommAbort(other));
  MUST(ncclCommDestroy(world));
}

// NCCL's parameters, by their names and by handles.
void ReadParameters() {
  const char** keys = nullptr;
  int count = 0;
  MUST(ncclParamGetAllParameterKeys(&keys, &count));
  if (count == 0) Die("NCCL has no parameters");
  for (int k = 0; k < count; ++k) {
    const std::string key = keys[k];
    const char* value = nullptr;
    int bytes = 0;
    MUST(ncclParamGetParameter(key.c_str(), &value, &bytes));
    if (value == nullptr) Die(key + ": has no value");
    ncclParamHandle_t handle = nullptr;
    MUST(ncclParamBind(&handle, key.c_str()));
    char raw[4096];
    MUST(ncclParamGet(handle, raw, sizeof raw, &bytes));
  }
}

void RunGrown() {
  const Gpu gpu(rank);
  ReadParameters();
  ncclComm_t world = Init("world");
  ncclComm_t small = nullptr;
  ncclComm_t grown = nullptr;
  const bool last = rank == ranks - 1;
  MUST(ncclCommSplit(world, last ? NCCL_SPLIT_NOCOLOR : 0, rank, &small, nullptr));
  Loop(gpu, world, [&](int command) {
    if (command == 1) {
      const ncclUniqueId id =
          Share("grown", [&](ncclUniqueId* made) { return ncclCommGetUniqueId(small, made); });
      MUST(ncclCommGrow(small, ranks, rank == 0 || last ? &id : nullptr, last ? rank : -1, &grown,
                        nullptr));
    } else if (command == 2) {
      MUST(ncclCommDestroy(grown));
      grown = nullptr;
    }
    const auto mine = static_cast<float>(rank);
    if (small != nullptr) {
      Expect(Sum(gpu, small, mine), static_cast<float>(SumOfRanks(ranks - 1)), "the small one");
    }
    if (grown == nullptr) return;
    Expect(Sum(gpu, grown, mine), static_cast<float>(SumOfRanks(ranks)), "the grown one");
  });
  if (small != nullptr) MUST(ncclCommDestroy(small));
  MUST(ncclCommDestroy(world));
}

// A thread that uses a communicator until another thread aborts it, also during its first
// operation, which connects the ranks.
class Trainer {
 public:
  Trainer(const std::string& name, bool stalled)
      : gpu_(rank), comm_(Init(name)), stalled_(stalled) {
    thread_ = std::thread([this] { Train(); });
  }
  // The thread stops in its next operation, on this rank or because this rank issues no more.
  void Stall() { stalled_.store(true); }
  void Abort() {
    aborted_.store(true);
    MUST(ncclCommAbort(comm_));
    thread_.join();
  }

 private:
  void Train() {
    gpu_.Enter();
    for (int step = 0; !aborted_.load(); ++step) {
      usleep(1000);  // computation time
      if (stalled_.load()) return;
      const auto mine = static_cast<float>(step % 10);
      gpu_.Give(mine);
      const ncclResult_t issued = ncclAllReduce(gpu_.send(), gpu_.receive(), kElements, ncclFloat,
                                                ncclSum, comm_, gpu_.stream);
      if (issued != ncclSuccess && !aborted_.load()) Must(issued, "the trainer's operation");
      if (issued != ncclSuccess) return;
      MUST(Cuda("cuStreamSynchronize", gpu_.stream));
      if (aborted_.load()) return;
      Expect(gpu_.Take(), mine * static_cast<float>(ranks), "the trainer's operation");
    }
  }

  const Gpu gpu_;
  ncclComm_t comm_;
  std::atomic<bool> stalled_, aborted_{false};
  std::thread thread_;
};

void RunWatched() {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  auto trainer = std::make_unique<Trainer>("trained", false);
  Loop(gpu, world, [&](int command) {
    if (command == 0) return;
    if (rank == ranks - 1) trainer->Stall();
    usleep(static_cast<useconds_t>(command * 7919 % 50 * 1000));
    trainer->Abort();
    // Every second time, the others are inside their first operation at the next abort.
    const bool stalled = command % 2 != 0 && rank == ranks - 1;
    trainer = std::make_unique<Trainer>("trained" + std::to_string(command), stalled);
  });
  if (rank == ranks - 1) trainer->Stall();
  trainer->Abort();
  MUST(ncclCommDestroy(world));
}

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  rewire::TakePlace(argv[1]);
  const std::string mode = argv[2];
  const std::pair<const char*, void (*)()> modes[] = {{"collectives", rewire::RunCollectives},
                                                      {"origins", rewire::RunOrigins},
                                                      {"many", rewire::RunMany},
                                                      {"suspended", rewire::RunSuspended},
                                                      {"shrunk", rewire::RunShrunk},
                                                      {"revoked", rewire::RunRevoked},
                                                      {"watched", rewire::RunWatched},
                                                      {"grown", rewire::RunGrown}};
  for (const auto& [name, run] : modes) {
    if (mode != name) continue;
    run();
    printf("rank %d done\n", rewire::rank);
    return 0;
  }
  return 2;
}
