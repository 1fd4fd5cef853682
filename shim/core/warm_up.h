// Warms up a new generation at the sizes in use, without running anything: makes the connections
// that the first real operations would otherwise make on the application's thread.
//
// On a blocking communicator, ncclGroupSimulateEnd makes the connections of a group's collectives
// and launches nothing. The call is collective: all ranks must simulate the same operations in the
// same order, so one rank sends the list with the unique id. Owned by builder threads, except
// UsageOf.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shim/core/environment.h"
#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

// Stands in front of the usage list: the first real operations then run during the build, on
// streams of their own beside the application's operations (beside_run.h). Without it a tiny
// operation runs at the warm index on the application's stream. The rank that mints the id decides
// for all ranks. The mark has the three bytes of a class.
inline constexpr std::string_view kBeside = "\xff\xff\xff";

// Instead of the list: the program has not used the communicator, so the build connects nothing.
// The program's first operation connects, as it would have done without the swap.
inline constexpr std::string_view kUnused = "\xff\xff\xfe";

struct UsageClass {
  Collective function = Collective::kAllReduce;
  uint8_t type = 0;       // ncclDataType_t
  uint8_t log_count = 0;  // floor(log2(count))
  bool operator==(const UsageClass&) const = default;
};

// The tiny real operation at the warm index as a class. Simulated with the others, so
// that at the cut it makes no connection: a thread that drives several ranks issues the operation
// of one rank after the other, and connections need all ranks at once.
inline constexpr UsageClass kTinyOperation{Collective::kAllReduce, ncclFloat32, 0};

// Thread-safe.
bool IsUnused(const VirtualCommunicator& comm);

// Returns the operations that the communicator has been used for so far. Functions made of sends
// and receives are left out, because simulation does not connect them.
std::vector<UsageClass> UsageOf(const VirtualCommunicator& comm);

// Encodes the list that follows the unique id: three bytes per class.
std::string EncodeUsage(const std::vector<UsageClass>& usage);
absl::StatusOr<std::vector<UsageClass>> DecodeUsage(std::string_view bytes);

// comms: this process's ranks of one communicator. scratch: any device memory of each rank, never
// read or written. Returns ncclSuccess or NCCL's error.
ncclResult_t Simulate(const NcclCalls& nccl, const std::vector<UsageClass>& usage,
                      std::span<const ncclComm_t> comms, std::span<void* const> scratch);

}  // namespace rewire::shim
