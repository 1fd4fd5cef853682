// One stage of a cooperating program: pipeline_program FOLDER. Each step passes a value around all
// stages, on a communicator that carries sends and receives alone, and adds a value on another one.
// A third one is non-blocking and idle. Every result is checked. The program ends when FOLDER/stop
// exists.
#include "rewire/rewire.h"
#include "tests/process/communicators/program_process.h"

namespace rewire {
namespace {

struct Stage {
  rewireWorld_t world = {sizeof(rewireWorld_t), 0, 0, 0, 0, 0};
  uint64_t step = 0;  // the whole state
};

void Need(rewireResult_t result, const char* what) {
  if (result != rewireSuccess) Die(std::string(what) + ": " + rewireLastError());
}
#define NEED(call) Need(call, #call)

// A program polls a non-blocking communicator before it makes the next one.
ncclComm_t Connect(rewireContext_t context, const Stage& stage, const char* name, int blocking) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  NEED(rewireUniqueId(context, name, &id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm, static_cast<int>(stage.world.slots), id,
                                                    static_cast<int>(stage.world.slot), &config);
  if (begun != ncclInProgress) MUST(begun);
  Settle(comm);
  return comm;
}

void PassOn(const Gpu& gpu, const Stage& stage, ncclComm_t sends) {
  const auto slots = static_cast<int>(stage.world.slots);
  const auto slot = static_cast<int>(stage.world.slot);
  const int before = (slot + slots - 1) % slots;
  const auto more = static_cast<int>(stage.step % 50);
  gpu.Give(static_cast<float>(100 * slot + more));
  MUST(ncclGroupStart());
  MUST(ncclSend(gpu.send(), kElements, ncclFloat, (slot + 1) % slots, sends, gpu.stream));
  MUST(ncclRecv(gpu.receive(), kElements, ncclFloat, before, sends, gpu.stream));
  MUST(ncclGroupEnd());
  Expect(gpu.Take(), static_cast<float>(100 * before + more), "the ring");
}

// Returns whether a stage asks to stop.
bool Add(const Gpu& gpu, const Stage& stage, ncclComm_t sums) {
  gpu.Give(Exists("stop") ? 1001.0F : 1.0F);
  MUST(ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, sums, gpu.stream));
  const auto sum = static_cast<int>(gpu.Take());
  Expect(static_cast<float>(sum % 1000), static_cast<float>(stage.world.slots), "the sum");
  return sum > 1000;
}

void Run() {
  rewireContext_t context = nullptr;
  Stage stage;
  NEED(rewireAttach(nullptr, &context));
  NEED(rewireWorld(context, &stage.world));
  const rewireCallbacks_t callbacks = {
      sizeof callbacks,
      &stage,
      nullptr,
      nullptr,
      nullptr,
      [](void* arg, const rewireWorld_t* now) { static_cast<Stage*>(arg)->world = *now; },
      nullptr,
      nullptr};
  const rewireTensor_t state = {sizeof state,     "step",         1,          8,
                                rewireReplicated, rewireVolatile, rewireHost, &stage.step};
  const rewireParallel_t parallel = {sizeof parallel, 0, 0};
  NEED(rewireSetParallel(context, &parallel, &callbacks));
  NEED(rewireRegisterTensor(context, &state));
  const Gpu gpu(Number("LOCAL_RANK"));
  ncclComm_t idle = Connect(context, stage, "idle", 0);
  ncclComm_t sends = Connect(context, stage, "sends", 1);
  ncclComm_t sums = Connect(context, stage, "sums", 1);
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  for (bool stop = false; !stop && outcome.kind != rewireLeave;) {
    usleep(2000);  // computation time: the next generations' builds also need the CPUs
    // A joiner enters at its first update. Its forward and backward pass come after that.
    if (stage.world.joining == 0) {
      PassOn(gpu, stage, sends);
      stop = Add(gpu, stage, sums);
    }
    const auto update = [](void* arg) {
      ++*static_cast<uint64_t*>(arg);
      return 0;
    };
    NEED(rewireUpdate(context, update, &stage.step, &outcome));
    if (stage.step == 1) {
      printf("rank %d ready\n", rank);
      fflush(stdout);
    }
  }
  for (ncclComm_t comm : {sums, sends, idle}) {
    // A member that has left is no longer in its communicators.
    if (outcome.kind != rewireLeave) {
      const ncclResult_t begun = ncclCommFinalize(comm);
      if (begun != ncclInProgress) MUST(begun);
      Settle(comm);
    }
    MUST(ncclCommDestroy(comm));
  }
  NEED(rewireDetach(context));
  printf("rank %d done\n", rank);
}

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  rewire::TakePlace(argv[1]);
  rewire::Run();
  return 0;
}
