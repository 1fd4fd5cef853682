// The environment of a member's process: torchrun's variables, the agent's socket, the preloaded
// library. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/transition/world.h"

namespace rewire {

struct MemberPlace {
  MemberId member = 0;
  uint32_t rank = 0;
  uint32_t local_rank = 0;  // which of this node's GPUs
  uint32_t world_size = 1;
};

// What all members of a job have in common. Empty: not set.
struct JobEnvironment {
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  std::string socket;
  std::string net_key;        // of the net plugin, one for all members
  std::string preload;        // the preloaded library
  std::string sim_directory;  // the simulated GPU's libraries
  std::string sim_nccl;       // the simulated libnccl.so.2
};

// `base` ("NAME=value" lines) with the member's variables in place of any that it has. Fails when
// the preloaded library's path cannot be written into LD_PRELOAD.
absl::StatusOr<std::vector<std::string>> MemberEnvironment(const std::vector<std::string>& base,
                                                           const JobEnvironment& job,
                                                           const MemberPlace& place);
// The environment of this process.
std::vector<std::string> OwnEnvironment();

}  // namespace rewire
