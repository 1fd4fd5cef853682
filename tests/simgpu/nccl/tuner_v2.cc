// Tuner ABI v2 (NCCL 2.21): the tuner names one algorithm and protocol.

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/tuner_plugin.h"

namespace simnccl {
namespace {

struct Api {
  const char* name;
  ncclResult_t (*init)(size_t nranks, size_t nodes, PluginLogger, void** context);
  ncclResult_t (*getCollInfo)(void* context, int function, size_t bytes, int collnet, int nvls,
                              int operations, int* algorithm, int* protocol, int* channels);
  ncclResult_t (*destroy)(void* context);
};

class TunerV2 final : public Tuner {
 public:
  TunerV2(const Api* api, void* context) : api_(api), context_(context) {}
  ~TunerV2() override { api_->destroy(context_); }
  ncclResult_t Choose(Function function, size_t bytes, int operations,
                      Protocol* protocol) override {
    int algorithm = -1;
    int chosen = -1;
    int channels = 0;
    SIMNCCL_TRY(api_->getCollInfo(context_, static_cast<int>(function), bytes, 0, 0, operations,
                                  &algorithm, &chosen, &channels));
    if (algorithm == kAlgorithmRing) {
      *protocol = chosen == kProtocolLl ? Protocol::kLl : Protocol::kSimple;
    }
    return ncclSuccess;
  }

 private:
  const Api* const api_;
  void* const context_;
};

}  // namespace

ncclResult_t MakeTunerV2(const void* symbol, const ncclComm* comm, int nodes,
                         std::unique_ptr<Tuner>* tuner) {
  const Api* api = static_cast<const Api*>(symbol);
  void* context = nullptr;
  SIMNCCL_TRY(api->init(comm->nranks, nodes, TheLogger(), &context));
  *tuner = std::make_unique<TunerV2>(api, context);
  return ncclSuccess;
}

}  // namespace simnccl
