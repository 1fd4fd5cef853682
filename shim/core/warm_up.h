// Warms up a new generation at the sizes in use, without running anything: makes the connections
// that the first real operations would otherwise make on the application's thread.
//
// On a blocking communicator, ncclGroupSimulateEnd makes the connections of a group's collectives
// and launches nothing. The call is collective: all ranks must simulate the same operations in the
// same order, so one rank sends the list with the unique id. Owned by builder threads, except
// UsageOf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shim/core/environment.h"
#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

// Stands in front of the usage list: the tiny real operation then runs during the build, on its own
// stream beside the application's operations, and not at the warm index on the application's
// stream. The rank that mints the id decides for all ranks. Three bytes, as for every class.
inline constexpr std::string_view kBeside = "\xff\xff\xff";

struct UsageClass {
  Collective function = Collective::kAllReduce;
  uint8_t type = 0;       // ncclDataType_t
  uint8_t log_count = 0;  // floor(log2(count))
  bool operator==(const UsageClass&) const = default;
};

// The tiny real operation (kBeside, or at the warm index) as a class. Simulated with the others, so
// that the operation makes no connection at the cut.
inline constexpr UsageClass kTinyOperation{Collective::kAllReduce, ncclFloat32, 0};

// Returns the operations that the communicator has been used for so far. Functions made of sends
// and receives are left out, because simulation does not connect them.
std::vector<UsageClass> UsageOf(const VirtualCommunicator& comm);

// Encodes the list that follows the unique id: three bytes per class.
std::string EncodeUsage(const std::vector<UsageClass>& usage);
absl::StatusOr<std::vector<UsageClass>> DecodeUsage(std::string_view bytes);

// scratch: any device memory, never read or written. Returns ncclSuccess or NCCL's error.
ncclResult_t Simulate(const NcclCalls& nccl, const std::vector<UsageClass>& usage, ncclComm_t comm,
                      void* scratch);

}  // namespace rewire::shim
