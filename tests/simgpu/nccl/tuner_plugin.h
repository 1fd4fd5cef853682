// Tuner plugins of the ABI versions 2 to 5 (and 6, whose chunk size this library does not use).
// Called by the thread that makes the communicator.
#pragma once

#include <memory>

#include "tests/simgpu/nccl/comm.h"
#include "tests/simgpu/nccl/plugin_abi.h"
#include "tests/simgpu/nccl/tuner.h"

namespace simnccl {

// Makes the newest tuner in the library that the pretended version accepts; a library without a
// tuner is no error. Takes over the reference to the library.
ncclResult_t MakeTuner(void* library, const ncclComm* comm, int nodes,
                       std::unique_ptr<Tuner>* tuner);

// The costs that a tuner may change; all algorithms except the ring are forbidden here.
struct CostTable {
  float cost[kAlgorithms][kProtocols];
  explicit CostTable(Protocol preferred);
  [[nodiscard]] Protocol Cheapest(Protocol fallback) const;
};

// One maker per version. A null context never comes with ncclSuccess.
using TunerMaker = ncclResult_t (*)(const void* symbol, const ncclComm* comm, int nodes,
                                    std::unique_ptr<Tuner>* tuner);
ncclResult_t MakeTunerV2(const void*, const ncclComm*, int, std::unique_ptr<Tuner>*);
ncclResult_t MakeTunerV3(const void*, const ncclComm*, int, std::unique_ptr<Tuner>*);
ncclResult_t MakeTunerV4(const void*, const ncclComm*, int, std::unique_ptr<Tuner>*);
ncclResult_t MakeTunerV5(const void*, const ncclComm*, int, std::unique_ptr<Tuner>*);

}  // namespace simnccl
