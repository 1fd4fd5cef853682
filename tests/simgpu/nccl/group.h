// ncclGroupStart/End: per-thread nesting; at the end of the outermost level everything that was
// asked for happens at once: management jobs, then connections, then launches in the order of the
// communicators' hashes. A call outside of a group is a group of one. Caller's thread; groups of
// non-blocking communicators run on a thread of their own, so that the order of two such groups on
// the device is undefined until the state of the first has left ncclInProgress.
#pragma once

#include <functional>

#include "tests/simgpu/nccl/launch.h"

namespace simnccl {

// A management call: makes, changes or frees a communicator.
struct Job {
  std::function<ncclResult_t()> run;
  // Whose state shows the progress; null for jobs that free their communicator.
  ncclComm* comm = nullptr;
  // Jobs with the same key run one after another; different ones at the same time.
  const void* order = nullptr;
  // The job makes `comm`, published at `out`, and a failure frees the communicator again. As in
  // NCCL this is so for ncclCommInitRank outside a group; else a failed one is the caller's to
  // abort.
  bool frees_on_failure = false;
  ncclComm_t* out = nullptr;
};

ncclResult_t GroupStart();
// Whether this thread is in a group.
bool InsideGroup();
// `simulate`: connect for the collectives, launch nothing (blocking communicators).
ncclResult_t GroupEnd(ncclSimInfo_t* simulate);

// Runs `add` inside a group level of its own; its error is the group's.
ncclResult_t InGroup(const std::function<ncclResult_t()>& add);

// Inside InGroup only.
ncclResult_t AddCollective(ncclComm* comm, const CollectiveTask& task);
ncclResult_t AddPeer(ncclComm* comm, const PeerTask& task);
ncclResult_t AddJob(Job job, bool blocking);

}  // namespace simnccl
