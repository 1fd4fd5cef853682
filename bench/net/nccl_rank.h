// One rank of a communicator of NCCL's host code, in its own process. The rank executes the work
// that the leader of `./dev bench net --nccl` requests, measures its time and checks every element
// of the results. RunRank() must be called on the process's main thread.
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

// One rank's result for all operations of a RankWork.
struct RankSample {
  double seconds = 0;
  double cpu_seconds = 0;  // processor time of all threads of the process
  uint64_t wrong = 0;      // number of wrong elements
};

struct RankOptions {
  std::string folder;   // folder for OpenNccl()
  bool plugin = false;  // false: NCCL's own sockets
  int rank = 0;
  uint64_t most_bytes = 0;  // limit of RankWork::bytes
};

// Sets the environment and makes the communicator; rank 0 sends the unique id, rank 1 receives the
// id. Then sends NCCL's version, executes work until kEnd and returns the exit status. Errors go to
// stderr.
[[nodiscard]] int RunRank(const RankOptions& options, const Control& control);

}  // namespace rewire::bench
