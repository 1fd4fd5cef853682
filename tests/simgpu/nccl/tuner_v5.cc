// Tuner ABI v5 (NCCL 2.28): the tuner knows the communicator and may change the cost model.

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/tuner_plugin.h"

namespace simnccl {
namespace {

struct Domains {
  int count;
  int min_ranks;
  int max_ranks;
};

// The cost model of the real library; this library has none and starts from zeros.
struct Constants {
  double base_latencies[kAlgorithms][kProtocols];
  double link_latencies[3][kAlgorithms][kProtocols];
  double bandwidths[5][4][3];
};

struct Api {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, size_t nranks, size_t nodes, PluginLogger,
                       Domains* domains, Constants* constants);
  ncclResult_t (*getCollInfo)(void* context, int function, size_t bytes, int operations,
                              float** costs, int algorithms, int protocols, int registered,
                              int* channels);
  ncclResult_t (*finalize)(void* context);
};

class TunerV5 final : public Tuner {
 public:
  TunerV5(const Api* api, void* context) : api_(api), context_(context) {}
  ~TunerV5() override { api_->finalize(context_); }
  ncclResult_t Choose(Function function, size_t bytes, int operations,
                      Protocol* protocol) override {
    CostTable table(*protocol);
    int channels = 0;
    SIMNCCL_TRY(api_->getCollInfo(context_, static_cast<int>(function), bytes, operations,
                                  reinterpret_cast<float**>(table.cost), kAlgorithms, kProtocols, 0,
                                  &channels));
    *protocol = table.Cheapest(*protocol);
    return ncclSuccess;
  }

 private:
  const Api* const api_;
  void* const context_;
};

}  // namespace

ncclResult_t MakeTunerV5(const void* symbol, const ncclComm* comm, int nodes,
                         std::unique_ptr<Tuner>* tuner) {
  const Api* api = static_cast<const Api*>(symbol);
  void* context = nullptr;
  Domains domains{comm->nranks, 1, 1};
  Constants constants{};
  SIMNCCL_TRY(
      api->init(&context, comm->hash, comm->nranks, nodes, TheLogger(), &domains, &constants));
  *tuner = std::make_unique<TunerV5>(api, context);
  return ncclSuccess;
}

}  // namespace simnccl
