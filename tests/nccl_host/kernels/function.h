// The device functions of NCCL, by the names that NCCL's generator gives them, as in
// ncclDevFunc_AllReduce_Sum_f32_RING_LL. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "reconfig/abi/nccl_types.h"
#include "tests/nccl_host/kernels/layout.h"

namespace nccl_host {

enum class Collective {
  kAllGather,
  kAllGatherV,
  kAllReduce,
  kBroadcast,
  kReduce,
  kReduceScatter,
  kSendRecv
};
enum class DeviceOp { kNone, kSum, kProd, kMinMax, kPreMulSum, kSumPostDiv };

struct Function {
  std::string name;
  Collective collective = Collective::kSendRecv;
  DeviceOp op = DeviceOp::kNone;
  ncclDataType_t type = ncclUint8;  // without an operator: bytes
  bool tree = false;                // false: ring
  Protocol protocol = kSimple;
};

// Returns nothing for a function that is not emulated: NVLS, PAT and CollNet.
[[nodiscard]] std::optional<Function> ParseFunction(std::string_view name);

}  // namespace nccl_host
