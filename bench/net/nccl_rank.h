// One rank of a communicator of NCCL's host code, in a process of its own: it does what the leader
// of `./dev bench net --nccl` asks for, times it and checks every element of the results.
#pragma once

#include <cstdint>
#include <string>

#include "bench/net/control.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::bench {

inline constexpr int kRanks = 2;

// From the leader; the same to both ranks.
struct RankWork {
  enum Kind : uint32_t { kEnd, kPingPong, kAllReduce };
  Kind kind = kEnd;
  uint32_t seed = 0;   // of the data
  uint64_t bytes = 0;  // of a message, a multiple of 4
  uint64_t count = 0;  // of operations: one after another on one stream
};

// From a rank, of the whole work.
struct RankSample {
  double seconds = 0;
  double cpu_seconds = 0;  // of all threads of the process
  uint64_t wrong = 0;      // elements
};

struct RankOptions {
  std::string folder;   // OpenNccl()
  bool plugin = false;  // or NCCL's own sockets
  int rank = 0;
  uint64_t most_bytes = 0;
};

// Sets the environment, tells rank 0's unique id or hears it, says NCCL's version, works until kEnd
// and returns the exit status. Errors go to stderr.
[[nodiscard]] int RunRank(const RankOptions& options, const Control& control);

}  // namespace rewire::bench
