// Destroys generations that no member uses any more, in the background and well after the cut.
//
// A generation is kept until the leader has retired the generation (no member uses it or will use
// it) and its last operation has completed on this member. Then REWIRE_RETIRE_MS more must pass,
// because a destroy right after the cut disturbs the first operations on the next generation. A
// build that begins ends this pause. A
// generation that CUDA graphs use is kept until ReleaseCaptured(). All
// ranks destroy in the same order, because a destroy may wait for the other ranks. For the same
// reason the ranks of this process are destroyed together, in NCCL groups. Thread-safe; one
// internal thread does the work, and the destructor joins that thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/base/task_queue.h"
#include "reconfig/elastic/protocol/messages.h"
#include "shim/core/chain.h"
#include "shim/core/environment.h"
#include "shim/core/memory_ledger.h"

namespace rewire::shim {

class Retirement {
 public:
  // gone: called after generations were destroyed, on the retirement thread.
  Retirement(Environment* environment, MemoryLedger* ledger, milliseconds after,
             std::function<void()> gone)
      : nccl_(&environment->nccl),
        services_(environment->services),
        device_(environment->device),
        counters_(&environment->counters),
        exit_gate_(environment->exit_gate),
        ledger_(ledger),
        after_(after),
        gone_(std::move(gone)),
        queue_("rw-retire") {}

  // Takes a generation that is out of use, or was dropped unused. Called at the cut: never blocks
  // and allocates nothing. A link without a generation (the program has destroyed it) is kept until
  // no earlier generation needs its event.
  void Add(std::unique_ptr<Link> link) REWIRE_EXCLUDES(mutex_);
  // Destroys the generations in this order, after those of earlier calls. Skips unknown ones.
  void Retire(std::vector<elastic::GenerationId> generations) REWIRE_EXCLUDES(mutex_);
  // Destroys what is due without the pause, for a build that begins (epoch_build.h). Returns
  // whether that is done.
  [[nodiscard]] bool Finish() REWIRE_EXCLUDES(mutex_);
  // Lets no destruction begin until Resume(). Returns false if one is under way, unless that has
  // taken longer than `endless`.
  [[nodiscard]] bool Hold(milliseconds endless) REWIRE_EXCLUDES(mutex_);
  void Resume() REWIRE_EXCLUDES(mutex_);
  // Lets no destruction begin any more.
  void End() REWIRE_EXCLUDES(mutex_);
  // The program's graphs no longer use generations of this communicator (Chain::first_id), or of
  // any. Older generations may be of groups with other identities.
  void ReleaseCaptured(const std::optional<CommunicatorId>& of) REWIRE_EXCLUDES(mutex_);
  // Returns the generations that are out of use and not destroyed yet, in ascending order.
  [[nodiscard]] std::vector<elastic::GenerationId> Held() REWIRE_EXCLUDES(mutex_);
  // Takes every generation that is not destroyed yet; the caller aborts them.
  std::vector<std::unique_ptr<Link>> TakeAll() REWIRE_EXCLUDES(mutex_);

 private:
  using Slot = std::unique_ptr<Link>;
  using Slots = std::vector<Slot>;

  // Begins the destruction of what is due, unless it is under way.
  void Start() REWIRE_REQUIRES(mutex_);
  // Posts Continue(), in place of a call that is posted already.
  void ContinueAt(Time when) REWIRE_REQUIRES(mutex_);
  void Continue(uint64_t call) REWIRE_EXCLUDES(mutex_);
  // Takes all ranks of the first due generation if their last operations have completed. *wait: one
  // is not complete.
  Slots TakeDue(bool* wait) REWIRE_EXCLUDES(mutex_);
  void FreeUnneeded() REWIRE_EXCLUDES(mutex_);
  Slot TakeUnneeded() REWIRE_EXCLUDES(mutex_);
  static Slot Take(Slot* at);
  static bool IsOf(const Link& link, const elastic::GenerationId& generation);
  Slots TakeAllOf(const elastic::GenerationId& generation) REWIRE_REQUIRES(mutex_);
  // The ranks of one generation.
  void Destroy(const Slots& links);
  // Returns whether no thread is inside the generations, so that their handles may be freed too.
  bool DestroyGenerations(const Slots& links);
  // Destroys the real communicators of these ranks and records the memory that this gave back.
  void DestroyMeasured(const Slots& links, std::span<const ncclComm_t> comms);
  // Returns the free memory of each rank's device; nullopt where it is unknown.
  std::vector<std::optional<uint64_t>> FreeBytes(const Slots& links);
  void FreeHandlesOf(const Link& link);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  const std::shared_ptr<ExitGate> exit_gate_;
  MemoryLedger* const ledger_;
  const milliseconds after_;
  const std::function<void()> gone_;
  Mutex mutex_;
  Slot links_ REWIRE_GUARDED_BY(mutex_);  // a list, newest first
  std::deque<elastic::GenerationId> due_ REWIRE_GUARDED_BY(mutex_);
  std::vector<elastic::GenerationId> captured_ REWIRE_GUARDED_BY(mutex_);  // due, but captured
  // A generation that was taken from the list and whose destruction has not returned yet.
  std::optional<elastic::GenerationId> destroying_ REWIRE_GUARDED_BY(mutex_);
  bool running_ REWIRE_GUARDED_BY(mutex_) = false;  // Continue() is posted
  uint64_t call_ REWIRE_GUARDED_BY(mutex_) = 0;     // the posted call; earlier ones do nothing
  int freeing_ REWIRE_GUARDED_BY(mutex_) = 0;       // posted calls of FreeUnneeded()
  bool hurried_ REWIRE_GUARDED_BY(mutex_) = false;  // no pause for what is due
  bool held_ REWIRE_GUARDED_BY(mutex_) = false;     // by a build
  bool ended_ REWIRE_GUARDED_BY(mutex_) = false;
  std::optional<Time> working_since_ REWIRE_GUARDED_BY(mutex_);  // set: inside Continue()
  bool rested_ REWIRE_GUARDED_BY(mutex_) = false;                // REWIRE_RETIRE_MS have passed
  TaskQueue queue_;                                              // last: joined first
};

}  // namespace rewire::shim
