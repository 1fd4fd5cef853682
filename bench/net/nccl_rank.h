// One rank of a communicator of NCCL's host code, in its own process. The rank executes the work
// that the leader of `./dev bench net --nccl` requests, measures its time and checks every element
// of the results. Call on the process's main thread.
#pragma once

#include <cstdint>
#include <string>

#include "bench/net/control.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::bench {

inline constexpr int kRanks = 2;

// Work that the leader sends; both ranks get the same work.
struct RankWork {
  enum Kind : uint32_t { kEnd, kPingPong, kAllReduce };
  Kind kind = kEnd;
  uint32_t seed = 0;   // seed of the data
  uint64_t bytes = 0;  // bytes of a message, a multiple of 4
  uint64_t count = 0;  // number of operations, one after another on one stream
};

// A rank's result for the whole work.
struct RankSample {
  double seconds = 0;
  double cpu_seconds = 0;  // processor time of all threads of the process
  uint64_t wrong = 0;      // number of wrong elements
};

struct RankOptions {
  std::string folder;   // folder for OpenNccl()
  bool plugin = false;  // false: NCCL's own sockets
  int rank = 0;
  uint64_t most_bytes = 0;
};

// Sets the environment, sends (rank 0) or receives the unique id, sends NCCL's version, works until
// kEnd and returns the exit status. Errors go to stderr.
[[nodiscard]] int RunRank(const RankOptions& options, const Control& control);

}  // namespace rewire::bench
