// Warm-up of a new generation at the sizes in use, without running anything: connects what the
// first real operations would otherwise connect on the application's thread.
//
// ncclGroupSimulateEnd does the connections of a group's collectives and launches nothing, on
// blocking communicators. It is collective: all ranks must simulate the same operations in the same
// order, so the list comes with the unique id from one of them. Builder threads only, except
// UsageOf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shim/core/nccl_calls.h"
#include "shim/virtual_communicator.h"

namespace rewire::shim {

// In front of the usage list: the tiny real operation runs during the build, on a stream of its own
// beside the application's operations, and not at the warm index on the application's stream. The
// one that mints the id decides for all. Three bytes, as every class.
inline constexpr std::string_view kBeside = "\xff\xff\xff";

struct UsageClass {
  Collective function = Collective::kAllReduce;
  uint8_t type = 0;       // ncclDataType_t
  uint8_t log_count = 0;  // floor(log2(count))
  bool operator==(const UsageClass&) const = default;
};

// What the communicator has been used for so far. Functions made of sends and receives are left
// out: simulation does not connect them.
std::vector<UsageClass> UsageOf(const VirtualCommunicator& comm);

// As it travels behind the unique id: three bytes per class.
std::string EncodeUsage(const std::vector<UsageClass>& usage);
absl::StatusOr<std::vector<UsageClass>> DecodeUsage(std::string_view bytes);

// scratch: any device memory; it is not touched. ncclSuccess, or what NCCL said.
ncclResult_t Simulate(const NcclCalls& nccl, const std::vector<UsageClass>& usage, ncclComm_t comm,
                      void* scratch);

}  // namespace rewire::shim
