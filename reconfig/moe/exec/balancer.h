// Balances one expert-parallel layer over the devices of a node while the layer computes (FEPLB's
// second phase, arXiv 2604.19654, with splitting). After the framework's own dispatch, copy engines
// carry some experts' weights and tokens from their owners to helpers. The results come back before
// the framework's own combine. Dispatch and combine are not affected.
//
// Each layer and micro-batch, forward or backward, is a *round*. One thread makes all calls, and
// every process of the node runs the same rounds in the same order:
//
//   BeginForward(input)       the tokens have been dispatched; plans and copies begin
//   ... GEMMs of Statics() ...
//   Next()                    what to compute now: own experts' tokens, or others'
//   ... GEMMs of these segments, and Next() again, until there are none ...
//   Collect()                 the stream has all rows of `out` from here on
//
// All rounds use one stream. No call waits for another process longer than `patience`: a late
// process keeps its tokens. When a process dies, streams that wait for the process are released and
// every call fails. Results since the last successful Check() must then not be used. One object
// serves all layers in turn; each process has one object per name.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/mutex.h"
#include "reconfig/moe/exec/giving.h"
#include "reconfig/moe/exec/joined_node.h"
#include "reconfig/moe/exec/loss_watch.h"
#include "reconfig/moe/exec/node_plan.h"
#include "reconfig/moe/exec/receiving.h"
#include "reconfig/moe/exec/round.h"
#include "reconfig/moe/exec/round_times.h"
#include "reconfig/moe/exec/shape.h"

namespace rewire::moe {

struct BalancerOptions {
  // Experts that may be copied in one round, all devices together; 0: one per slot.
  uint32_t copies = 0;
  // This number of late rounds in a row halves `copies`. A round is late if a stream waited for
  // copies longer than late_percent of the time since the round began.
  uint32_t late_rounds = 8;
  uint32_t late_percent = 5;
  // Limit of the host's wait for other processes in the first Next(); the device is busy meanwhile.
  Duration patience = microseconds(500);
  // Limit of the wait until all processes of the node have called Open().
  Duration meeting = seconds(60);
};

struct BalancerCounts {
  uint64_t rounds = 0;
  uint64_t given = 0;     // moves of own experts to helpers
  uint64_t received = 0;  // moves of others' experts to this device
  uint64_t given_rows = 0;
  uint64_t copied_bytes = 0;  // between devices, copied by this process
  uint64_t late_rounds = 0;
  uint32_t copies = 0;  // the remaining budget; 0: the balancer moves nothing any more
  Off off = Off::kNo;
};

// One balancer's part of the process's counters (reconfig/base/counters.h). Thread-compatible.
class CountsPart {
 public:
  CountsPart() = default;
  ~CountsPart();  // removes the budget; the other counts stay
  CountsPart(const CountsPart&) = delete;
  CountsPart& operator=(const CountsPart&) = delete;

  void Set(const BalancerCounts& now);

 private:
  BalancerCounts last_;
};

class Balancer {
 public:
  // Meets the other processes, allocates memory in the current context, and tests the path to each
  // process. On an error, the layer must run without a balancer.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Balancer>> Open(
      const CudaDriver& cuda, const NodeGroup& group, const Shape& shape,
      const BalancerOptions& options);
  // Waits for this process's copies, unless a process has died.
  ~Balancer();
  Balancer(const Balancer&) = delete;
  Balancer& operator=(const Balancer&) = delete;

  [[nodiscard]] absl::Status BeginForward(const RoundInput& input);
  // moved: the result of moved() after the forward round of the same layer and micro-batch. The
  // backward round moves at most these rows.
  [[nodiscard]] absl::Status BeginBackward(const RoundInput& input, const Moved& moved);
  // Returns some own segments that no plan moves, to compute until the plan is known.
  [[nodiscard]] const std::vector<Segment>& Statics() const { return rows_.statics(); }
  // Call after the GEMMs of all segments so far. Sends back results for others and lets the stream
  // wait for the next segments. Returns no segments at the end of the round.
  [[nodiscard]] absl::StatusOr<std::vector<Segment>> Next();
  // For a backward round: returns the gradients of own experts' weights from helpers, in the order
  // of addition, (expert, helper). The gradients are valid on the stream until the next Begin..().
  [[nodiscard]] absl::StatusOr<std::vector<Gradient>> Collect();
  // Returns what was moved in the round that Collect() ended.
  [[nodiscard]] const Moved& moved() const { return moved_; }

  // Returns OK if all results so far were made with all processes alive. This includes results on
  // the device if the caller has waited for the stream.
  [[nodiscard]] absl::Status Check();
  [[nodiscard]] BalancerCounts counts();

 private:
  enum class Stage { kIdle, kBegun, kComputing, kComputed };  // the call that comes next

  Balancer(std::unique_ptr<JoinedNode> node, const BalancerOptions& options, CUcontext context);
  [[nodiscard]] absl::Status Prepare(Time deadline);
  void Leave();

  // Run on the thread that makes the balancer's calls.
  [[nodiscard]] absl::Status Expect(Stage stage, const char* call) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status Begin(const RoundInput& input, const Moved* moved);
  absl::Status EndStatics();
  void AwaitSettlement();
  [[nodiscard]] absl::Status Close() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::StatusOr<std::vector<Segment>> TakeTurn() REWIRE_REQUIRES(mutex_);

  // Run on the thread "rewire-moe", which plans and copies to helpers.
  void Run();
  void PlanRound() REWIRE_REQUIRES(mutex_);
  void GiveWhatIsDue(Time now) REWIRE_REQUIRES(mutex_);

  // Stops the balancer here and on the others, which may wait for this process. Keeps the first
  // reason.
  absl::Status Break(absl::Status status) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status CheckLost() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] BalancerCounts Counts() const REWIRE_REQUIRES(mutex_);

  const BalancerOptions options_;
  const CUcontext context_;
  const std::unique_ptr<JoinedNode> node_;
  std::unique_ptr<RoundTimes> times_ REWIRE_PT_GUARDED_BY(mutex_);
  std::unique_ptr<LossWatch> watch_;

  // Owned by the caller's thread.
  RoundRows rows_;
  Moved before_;  // from the forward round, in a backward round

  // Between Begin..() and Close(), the balancer's thread also uses the round and the moves, and
  // every change or read there holds mutex_.
  Round round_ REWIRE_GUARDED_BY(mutex_);
  Moved moved_;
  std::unique_ptr<Giving> giving_ REWIRE_PT_GUARDED_BY(mutex_);
  std::unique_ptr<Receiving> receiving_ REWIRE_PT_GUARDED_BY(mutex_);
  std::vector<Posting> postings_;  // owned by the balancer's thread from its start

  Mutex mutex_;
  Stage stage_ REWIRE_GUARDED_BY(mutex_) = Stage::kIdle;
  bool planned_ REWIRE_GUARDED_BY(mutex_) = true;
  // copies wait for earlier ones
  Time in_order_until_ REWIRE_GUARDED_BY(mutex_);
  Speeds nodes_speeds_ REWIRE_GUARDED_BY(mutex_);  // speeds of the last plan
  Lateness lateness_ REWIRE_GUARDED_BY(mutex_);
  CountsPart reported_ REWIRE_GUARDED_BY(mutex_);
  absl::Status status_ REWIRE_GUARDED_BY(mutex_);
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rewire::moe
