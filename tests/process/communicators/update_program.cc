// One member of a cooperating program whose update function begins with a collective operation:
// update_program FOLDER. The whole state is constant and on every member, so it has no copies. The
// member of slot 1 ends inside its update function, before the operation, when FOLDER/die exists.
// Every result is checked. The program ends when FOLDER/stop exists.
#include <csignal>
#include <optional>
#include <utility>

#include "rewire/rewire.h"
#include "tests/process/communicators/program_process.h"

namespace rewire {
namespace {

class Program {
 public:
  Program() : gpu_(Number("LOCAL_RANK")) {
    Need(rewireAttach(nullptr, &context_), "rewireAttach");
    Need(rewireWorld(context_, &world_), "rewireWorld");
    const rewireCallbacks_t callbacks = {
        sizeof callbacks,
        this,
        nullptr,
        nullptr,
        nullptr,
        [](void* arg, const rewireWorld_t* now) { static_cast<Program*>(arg)->world_ = *now; },
        nullptr,
        nullptr};
    const rewireTensor_t state = {sizeof state,     "steps",        1,          8,
                                  rewireReplicated, rewireConstant, rewireHost, &steps_};
    const rewireParallel_t parallel = {sizeof parallel, 0, 0};
    Need(rewireSetParallel(context_, &parallel, &callbacks), "rewireSetParallel");
    Need(rewireRegisterTensor(context_, &state), "rewireRegisterTensor");
    ncclUniqueId id;
    Need(rewireUniqueId(context_, "all", &id), "rewireUniqueId");
    MUST(ncclCommInitRank(&comm_, static_cast<int>(world_.slots), id,
                          static_cast<int>(world_.slot)));
  }

  void Run() {
    bool ready = false;
    for (bool stop = false; !stop;) {
      std::optional<float> sum = Add(Exists("stop") ? 1001.0F : 1.0F);
      if (sum) stop = *sum > 1000;
      rewireOutcome_t outcome = {};
      outcome.size = sizeof outcome;
      if (!sum || rewireUpdate(context_, Update, this, &outcome) != rewireSuccess) {
        Recover();
      } else if (outcome.world.slots != world_.slots || outcome.world.slot != world_.slot) {
        Die("the outcome has another world");
      }
      if (steps_ < 10 || std::exchange(ready, true)) continue;
      printf("rank %d ready\n", rank);
      fflush(stdout);
    }
    MUST(ncclCommFinalize(comm_));
    MUST(ncclCommDestroy(comm_));
    Need(rewireDetach(context_), "rewireDetach");
    printf("rank %d done\n", rank);
  }

 private:
  static void Need(rewireResult_t result, const char* what) {
    if (result != rewireSuccess) Die(std::string(what) + ": " + rewireLastError());
  }

  // Returns the sum of all members' values; nothing when the operation failed.
  std::optional<float> Add(float value) {
    gpu_.Give(value);
    if (ncclAllReduce(gpu_.send(), gpu_.receive(), kElements, ncclFloat, ncclSum, comm_,
                      gpu_.stream) != ncclSuccess) {
      return std::nullopt;
    }
    if (Cuda("cuStreamSynchronize", gpu_.stream) != 0 || rewireCheck() != rewireSuccess) {
      return std::nullopt;
    }
    return gpu_.Take();
  }

  static int Update(void* arg) {
    auto* p = static_cast<Program*>(arg);
    if (p->world_.slot == 1 && Exists("die")) {
      unlink((folder + "/die").c_str());
      raise(SIGKILL);
    }
    // All members must be in the same step.
    const std::optional<float> steps = p->Add(static_cast<float>(p->steps_ % 1000));
    if (!steps) return rewireUnchanged;
    Expect(*steps, static_cast<float>(p->steps_ % 1000 * p->world_.slots), "the steps");
    ++p->steps_;
    return 0;
  }

  void Recover() {
    rewireOutcome_t outcome = {};
    outcome.size = sizeof outcome;
    Need(rewireRecover(context_, &outcome), "rewireRecover");
    printf("rank %d recovered\n", rank);
    fflush(stdout);
  }

  const Gpu gpu_;
  rewireContext_t context_ = nullptr;
  rewireWorld_t world_ = {sizeof(rewireWorld_t), 0, 0, 0, 0, 0};
  ncclComm_t comm_ = nullptr;
  uint64_t steps_ = 0;
};

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  rewire::TakePlace(argv[1]);
  rewire::Program().Run();
  return 0;
}
