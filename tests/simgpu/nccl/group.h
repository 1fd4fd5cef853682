// ncclGroupStart/End with per-thread nesting. At the end of the outermost level, all requests run:
// management jobs, then connections, then launches in the order of the communicators' hashes. A
// call outside a group is a group of one. Called by the caller's thread. Groups of non-blocking
// communicators run on their own thread. The order of two such groups on the device is therefore
// undefined until the state of the first has left ncclInProgress.
#pragma once

#include <functional>
#include <memory>

#include "tests/simgpu/nccl/launch.h"

namespace simnccl {

// A management call: makes, changes or frees a communicator.
struct Job {
  std::function<ncclResult_t()> run;
  // The communicator whose state shows the progress; null for jobs that free their communicator.
  ncclComm* comm = nullptr;
  // Jobs with the same key run one after another; jobs with different keys run concurrently.
  const void* order = nullptr;
  // The job makes `comm`, stored at `out`, and frees the communicator after a failure. As in NCCL,
  // this holds for ncclCommInitRank outside a group; otherwise the caller must abort a failed
  // communicator.
  bool frees_on_failure = false;
  ncclComm_t* out = nullptr;
  // Counts the calling thread as inside `comm` until the group's end counts the thread itself.
  std::shared_ptr<void> inside;
};

ncclResult_t GroupStart();
// Returns whether this thread is in a group.
bool InsideGroup();
// `simulate`: connects for the collectives and launches nothing (blocking communicators).
ncclResult_t GroupEnd(ncclSimInfo_t* simulate);

// Runs `add` inside its own group level. The error of `add` becomes the group's.
ncclResult_t InGroup(const std::function<ncclResult_t()>& add);

// Valid inside InGroup only.
ncclResult_t AddCollective(ncclComm* comm, const CollectiveTask& task);
ncclResult_t AddPeer(ncclComm* comm, const PeerTask& task);
ncclResult_t AddJob(Job job, bool blocking);

}  // namespace simnccl
