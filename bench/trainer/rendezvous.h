// Shares one ncclUniqueId between the members of an unmodified job: slot 0 listens at
// MASTER_ADDR:MASTER_PORT, the others fetch the id. Called only at the start, by one thread; every
// wait has a deadline.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/clock.h"

namespace rewire::trainer {

// The place of this process, from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT. A process
// without these variables is a world of its own.
struct Place {
  int slot = 0;
  int slots = 1;
  int local_rank = 0;
  std::string address;  // "127.0.0.1:29500"; empty in a world of one

  static absl::StatusOr<Place> FromEnvironment();
  static absl::StatusOr<int> LocalRank();
};

absl::StatusOr<ncclUniqueId> ShareUniqueId(
    const Place& place, Duration within, const std::function<absl::StatusOr<ncclUniqueId>()>& mint);

}  // namespace rewire::trainer
