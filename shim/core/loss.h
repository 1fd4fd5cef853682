// Aborts generations in one group, on the loss thread, and ends a communicator while a thread is
// inside that may not return by itself: in a blocking ncclCommInitRankConfig whose peer never
// comes, or in a first connection. For ShimCommunicators and Builder.
//
// After the loss of a member, every call that is blocked inside its generations must return.
// Freeing one generation may wait for the kernels of another, so separate aborts would deadlock.
//
// NCCL's rules (read in the sources of 2.22.3 to 2.30.7):
// - ncclCommAbort sets the abort flags, waits only for the background thread of a *non-blocking*
//   call (comm->groupJob), and then frees. On a blocking communicator ncclCommAbort frees under a
//   thread that is inside: a double free, or a crash of the other thread.
// - Inside a group, ncclCommAbort sets the flags at once, and the end of the group frees. All waits
//   of an initialisation check the flags. So an interruption opens a group, aborts in the group,
//   waits until the thread has left, and only then ends the group.
// - ncclCommInitRank without a config frees the communicator when the call fails;
//   ncclCommInitRankConfig leaves the communicator to the caller. Only the latter may be
//   interrupted.
// - Nothing else ends an initialisation that waits for a peer which has not reached the bootstrap's
//   root: each rank waits in accept() on a socket of its own, without a timeout, and keeps a core
//   busy. The death of a peer breaks the wait only after the peer has connected.
//
// With any other version of NCCL no communicator is aborted under a thread: the thread stays inside
// until NCCL returns, and the communicator is aborted then.
//
// Thread-safe; the destructor joins the loss thread. Each interruption has a detached thread, which
// owns all that it uses.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/base/task_queue.h"
#include "shim/core/chain.h"
#include "shim/core/environment.h"

namespace rewire::shim {

class Loss {
 public:
  explicit Loss(Environment* environment)
      : nccl_(&environment->nccl),
        services_(environment->services),
        device_(environment->device),
        counters_(&environment->counters),
        exit_gate_(environment->exit_gate),
        queue_("rw-abort") {}

  // Aborts published generations. The threads inside leave before anything is freed. A generation
  // whose creation by the program is under way is interrupted.
  void Abort(std::vector<std::unique_ptr<Link>> links);
  // Aborts generations that were never published, so no thread is inside. Runs on the caller's
  // thread, which must be one of Rewire's and inside the exit gate.
  void AbortUnused(std::vector<std::unique_ptr<Link>> links);
  // Ends the real communicator of a generation that a thread is inside: a builder's, or the
  // program's during its own creation. Frees both after every thread has left the generation.
  // Returns at once. The services and the device must outlive the process's use of NCCL.
  void Interrupt(std::unique_ptr<Link> link);
  // Returns whether generations are being aborted. An interruption that may last, because this NCCL
  // does not let the thread inside return, is not counted.
  [[nodiscard]] bool Aborting() const { return AbortingFor(Duration::max()); }
  // The same, but false if that has taken longer than `endless`.
  [[nodiscard]] bool AbortingFor(Duration endless) const;
  // Counts as an abort while the result exists.
  [[nodiscard]] std::shared_ptr<void> CountAbort();
  // Runs on the loss thread, after the work posted before.
  void After(std::function<void()> work) { queue_.Post(std::move(work)); }

 private:
  void AbortAndFree(std::vector<std::unique_ptr<Link>> links);
  // Returns false when a thread is still inside one of the generations.
  bool WaitUntilLeft(const std::vector<std::unique_ptr<Link>>& links, bool blocking_too,
                     milliseconds within);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  const std::shared_ptr<ExitGate> exit_gate_;
  // The thread of an interruption may outlive this object.
  struct Aborts {
    Mutex mutex;
    int running REWIRE_GUARDED_BY(mutex) = 0;
    Time since REWIRE_GUARDED_BY(mutex);  // the first of those that run
  };
  const std::shared_ptr<Aborts> aborts_ = std::make_shared<Aborts>();
  TaskQueue queue_;
};

}  // namespace rewire::shim
