// Publishes generations outside of cuts: the first generation of a joiner, the generation of an
// update boundary, and the empty generations of communicators that are lost, or that wait again.
// For ShimCommunicators, on the participant's and the builders' threads; Lose() on any thread.
//
// Thread-safe under each chain's lock. Links that leave a chain go to the retirement when no member
// may use them any more, and to the caller when they must be aborted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shim/core/chain.h"
#include "shim/core/environment.h"
#include "shim/core/retirement.h"

namespace rewire::shim {

class Publication {
 public:
  Publication(Environment* environment, Retirement* retirement)
      : services_(environment->services),
        device_(environment->device),
        counters_(&environment->counters),
        retirement_(retirement) {}

  // Takes a built generation. A joiner's first generation is published; any other waits in `built`
  // for its epoch. Returns false, and takes nothing, if the communicator was closed or pinned
  // meanwhile. *replaced: generations that were never published.
  [[nodiscard]] bool Install(Chain* chain, std::unique_ptr<Link>* link,
                             std::vector<std::unique_ptr<Link>>* replaced);
  // Takes out the generation built for an epoch that is abandoned.
  void Abandon(Chain* chain, Epoch epoch, std::vector<std::unique_ptr<Link>>* dropped);
  // At the update boundary: goes to the generation built for the epoch at once and restarts the
  // operation counter at 0. A generation for another group brings the communicator's identity.
  // Without such a generation the communicator is closed.
  void SwapNow(Chain* chain, Epoch epoch);
  // Returns whether SwapPending() does something. A suspended communicator stays, because the
  // program resumes the generation that it has suspended; suspending is collective.
  [[nodiscard]] static bool IsDue(Chain* chain, Epoch epoch);
  // At an update that the decision names: goes to the pending generation of this epoch. Earlier
  // pending generations go out of use with it. The counter goes on at the cut. Nothing happens
  // where the program has passed the cut.
  void SwapPending(Chain* chain, Epoch epoch);
  // Marks the communicator lost and takes all its generations out. Until the next boundary, calls
  // return ncclRemoteError, and Chain::lost_why is the reason.
  void Lose(Chain* chain, const std::string& reason, std::vector<std::unique_ptr<Link>>* links);

 private:
  void GoToBuilt(Chain* chain, Epoch epoch) REWIRE_REQUIRES(chain->mutex);
  // The first operation on `next` waits for the last one on the current generation.
  void GoTo(Chain* chain, std::unique_ptr<Link> next) REWIRE_REQUIRES(chain->mutex);

  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  Retirement* const retirement_;
};

}  // namespace rewire::shim
