// Runs the first operations on a new generation in its build: on streams of their own, beside the
// program's operations on the old generation. For EpochBuild, on the builder's thread, which may be
// left inside NCCL (see there).
//
// The first operation adds the ranks' tables of sent pairs (sent_pairs.h). The second sends one
// byte over each of these pairs: NCCL connects a send only when the send really runs, and a rank
// cannot know alone which ranks will receive.
//
// The kernels of these operations wait for the other ranks' kernels. If the program's kernels stand
// before them in a queue of the device, in another order on each rank, all may wait for each other.
// So the build is given up when the program issues no operation for a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "shim/core/build_task.h"
#include "shim/core/chain.h"
#include "shim/core/environment.h"
#include "shim/core/sent_pairs.h"

namespace rewire::shim {

class BesideRun {
 public:
  // stalled: the build is given up when the program issues nothing for this time.
  BesideRun(Environment* environment, milliseconds stalled)
      : nccl_(&environment->nccl),
        device_(environment->device),
        counters_(&environment->counters),
        stalled_(stalled) {}

  // Returns the bytes of Link::scratch for a generation with this number of ranks.
  static size_t BytesFor(uint32_t ranks);

  // chains, links: this process's ranks of the generation. All ranks of the generation must call.
  absl::Status Run(BuildTask* task, const std::vector<std::shared_ptr<Chain>>& chains,
                   std::span<Link* const> links);

 private:
  using Chains = std::vector<std::shared_ptr<Chain>>;
  using Ranks = std::span<Link* const>;
  using Streams = std::span<const cudaStream_t>;
  // Issues the operation of one of this process's ranks. Uses only copies: its thread may be left
  // inside NCCL.
  using Call = std::function<ncclResult_t(size_t rank_here)>;

  absl::Status RunOn(BuildTask* task, const Chains& chains, Ranks links, Streams streams);
  // Returns the pairs of all ranks, which are the same on all ranks.
  absl::StatusOr<SentPairs> AddTables(BuildTask* task, const Chains& chains, Ranks links,
                                      Streams streams);
  absl::Status Send(BuildTask* task, const Chains& chains, Ranks links, Streams streams,
                    const SentPairs& pairs);
  // Issues one operation on each rank and waits until all are complete.
  absl::Status Complete(BuildTask* task, const Chains& chains, Ranks links, Streams streams,
                        const Call& call);
  absl::Status Await(BuildTask* task, const Chains& chains, Ranks links);

  const NcclCalls* const nccl_;
  Device* const device_;
  CoreCounters* const counters_;
  const milliseconds stalled_;
};

}  // namespace rewire::shim
