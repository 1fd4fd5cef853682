#include "tests/simgpu/nccl/tuner_plugin.h"

#include <dlfcn.h>

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/plugin_library.h"

namespace simnccl {
namespace {

// Holds the plugin's library, which must outlive the tuner.
class LoadedTuner final : public Tuner {
 public:
  LoadedTuner(void* library, std::unique_ptr<Tuner> tuner)
      : library_(library), tuner_(std::move(tuner)) {}
  ~LoadedTuner() override {
    tuner_.reset();
    ClosePlugin(library_);
  }
  ncclResult_t Choose(Function function, size_t bytes, int operations,
                      Protocol* protocol) override {
    return tuner_->Choose(function, bytes, operations, protocol);
  }

 private:
  void* const library_;
  std::unique_ptr<Tuner> tuner_;
};

}  // namespace

CostTable::CostTable(Protocol preferred) {
  for (auto& row : cost) {
    for (float& c : row) c = kCostIgnore;
  }
  cost[kAlgorithmRing][kProtocolLl] = preferred == Protocol::kLl ? 1.0f : 2.0f;
  cost[kAlgorithmRing][kProtocolSimple] = preferred == Protocol::kLl ? 2.0f : 1.0f;
}

Protocol CostTable::Cheapest(Protocol fallback) const {
  const float ll = cost[kAlgorithmRing][kProtocolLl];
  const float simple = cost[kAlgorithmRing][kProtocolSimple];
  if (ll < 0 && simple < 0) return fallback;
  if (ll < 0) return Protocol::kSimple;
  return simple < 0 || ll < simple ? Protocol::kLl : Protocol::kSimple;
}

ncclResult_t MakeTuner(void* library, const ncclComm* comm, int nodes,
                       std::unique_ptr<Tuner>* tuner) {
  // v6 is v5 with one additional, optional member at its end.
  constexpr std::pair<int, TunerMaker> kMakers[] = {
      {6, MakeTunerV5}, {5, MakeTunerV5}, {4, MakeTunerV4}, {3, MakeTunerV3}, {2, MakeTunerV2}};
  const AbiRange range = TunerVersions(comm->version);
  for (const auto& [abi, make] : kMakers) {
    if (abi > range.newest || abi < range.oldest) continue;
    const std::string symbol = "ncclTunerPlugin_v" + std::to_string(abi);
    const void* address = ::dlsym(library, symbol.c_str());
    if (address == nullptr) continue;
    std::unique_ptr<Tuner> made;
    const ncclResult_t result = make(address, comm, nodes, &made);
    if (result != ncclSuccess) {
      ClosePlugin(library);
      return result;
    }
    Info("TUNER/Plugin: using v%d", abi);
    *tuner = std::make_unique<LoadedTuner>(library, std::move(made));
    return ncclSuccess;
  }
  ClosePlugin(library);
  return ncclSuccess;
}

}  // namespace simnccl
