// Tuner ABI v3 (NCCL 2.22): the tuner changes a table of costs.

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/tuner_plugin.h"

namespace simnccl {
namespace {

struct Api {
  const char* name;
  ncclResult_t (*init)(size_t nranks, size_t nodes, PluginLogger, void** context);
  ncclResult_t (*getCollInfo)(void* context, int function, size_t bytes, int operations,
                              float** costs, int algorithms, int protocols, int* channels);
  ncclResult_t (*destroy)(void* context);
};

class TunerV3 final : public Tuner {
 public:
  TunerV3(const Api* api, void* context) : api_(api), context_(context) {}
  ~TunerV3() override { api_->destroy(context_); }
  ncclResult_t Choose(Function function, size_t bytes, int operations,
                      Protocol* protocol) override {
    CostTable table(*protocol);
    int channels = 0;
    SIMNCCL_TRY(api_->getCollInfo(context_, static_cast<int>(function), bytes, operations,
                                  reinterpret_cast<float**>(table.cost), kAlgorithms, kProtocols,
                                  &channels));
    *protocol = table.Cheapest(*protocol);
    return ncclSuccess;
  }

 private:
  const Api* const api_;
  void* const context_;
};

}  // namespace

ncclResult_t MakeTunerV3(const void* symbol, const ncclComm* comm, int nodes,
                         std::unique_ptr<Tuner>* tuner) {
  const Api* api = static_cast<const Api*>(symbol);
  void* context = nullptr;
  SIMNCCL_TRY(api->init(comm->nranks, nodes, TheLogger(), &context));
  *tuner = std::make_unique<TunerV3>(api, context);
  return ncclSuccess;
}

}  // namespace simnccl
