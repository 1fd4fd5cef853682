// Evens out one expert-parallel layer over the devices of a node, while it computes (FEPLB's second
// phase, arXiv 2604.19654, with splitting): after the framework's own dispatch some experts'
// weights and tokens go from their owners to helpers by copy engine, and results come back before
// the framework's own combine. Neither sees anything of it.
//
// For each layer and micro-batch, forward or backward, a *round*, on one thread, the same rounds in
// the same order on every process of the node:
//
//   BeginForward(input)       the tokens have been dispatched; plans and copies begin
//   ... GEMMs of Statics() ...
//   Next()                    what to compute now: own experts' tokens, or others'
//   ... GEMMs of these segments, and Next() again, until there are none ...
//   Collect()                 the stream has all rows of `out` from here on
//
// One stream for all rounds. No call waits for another process longer than `patience`: who is late
// keeps its tokens. When a process dies, streams that wait for it are let go, and every call fails:
// what was computed since the last Check() that passed is not to be used. One object serves all
// layers in turn; one per process and name.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/mutex.h"
#include "reconfig/moe/exec/balancer_counts.h"
#include "reconfig/moe/exec/copy_queue.h"
#include "reconfig/moe/exec/lateness.h"
#include "reconfig/moe/exec/lent_slots.h"
#include "reconfig/moe/exec/node_memory.h"
#include "reconfig/moe/exec/node_page.h"
#include "reconfig/moe/exec/round.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/turns.h"

namespace rewire::moe {

struct BalancerOptions {
  // Experts that may be copied in one round, all devices together; 0: as many as there are slots.
  uint32_t copies = 0;
  // So many late rounds in a row halve `copies`. Late: a stream waited for copies longer than
  // late_percent of the time since the round began.
  uint32_t late_rounds = 8;
  uint32_t late_percent = 5;
  // Of the host, with other processes, in the first Next(); the device is busy meanwhile.
  Duration patience = microseconds(500);
  // For all processes of the node to come to Open().
  Duration meeting = seconds(60);
};

class Balancer {
 public:
  // Meets the other processes, allocates, and tries the path to each of them. In the context that
  // is current. Where it fails, the layer runs without it.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Balancer>> Open(
      const CudaDriver& cuda, const NodeGroup& group, const Shape& shape,
      const BalancerOptions& options);
  // Waits for its own copies, unless a process has died.
  ~Balancer();
  Balancer(const Balancer&) = delete;
  Balancer& operator=(const Balancer&) = delete;

  [[nodiscard]] absl::Status BeginForward(const RoundInput& input);
  // `moved`: what moved() said after the forward round of the same layer and micro-batch. No more
  // than that is moved.
  [[nodiscard]] absl::Status BeginBackward(const RoundInput& input, const Moved& moved);
  // Some of the own segments that stay here whatever is planned: enough to be busy with until then.
  [[nodiscard]] const std::vector<Segment>& Statics() const { return statics_; }
  // Behind the GEMMs of all segments so far: hands back what was computed for others, and lets the
  // stream wait for what is to come. None: that was all.
  [[nodiscard]] absl::StatusOr<std::vector<Segment>> Next();
  // Of a backward round: the gradients of own experts' weights that helpers computed, in the order
  // in which they are to be added, (expert, helper). Valid on the stream until the next Begin..().
  [[nodiscard]] absl::StatusOr<std::vector<Gradient>> Collect();
  // What was moved in the round that Collect() has ended.
  [[nodiscard]] const Moved& moved() const { return moved_; }

  // Whether everything up to here, on the device as well if its stream has been waited for, was
  // made with all processes alive.
  [[nodiscard]] absl::Status Check();
  [[nodiscard]] BalancerCounts counts();

 private:
  // So much of `patience` is for helpers whose copies come first.
  static constexpr int kInOrder = 4;
  enum class Stage { kIdle, kBegun, kComputing, kComputed };  // which call comes next
  struct Give {
    Stowed stowed;
    enum { kPending, kGiven, kKept } state = kPending;
  };

  Balancer(const CudaDriver& cuda, const NodeGroup& group, const Shape& shape,
           const BalancerOptions& options, CUcontext context);
  [[nodiscard]] absl::Status Prepare();
  [[nodiscard]] absl::Status TryPaths(Time deadline);
  void Leave();
  [[nodiscard]] absl::Status Expect(Stage stage, const char* call) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status CheckInput(const RoundInput& input, const Moved* moved) const
      REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status Begin(const RoundInput& input, const Moved* moved);
  [[nodiscard]] Segment OwnSegment(uint32_t expert, uint32_t first, uint32_t rows) const;
  void AddKept(uint32_t expert, std::vector<Segment>* segments) const REWIRE_REQUIRES(mutex_);
  absl::Status EndStatics();
  void AwaitSettlement();
  [[nodiscard]] absl::Status Close() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::StatusOr<std::vector<Segment>> TakeTurn() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::StatusOr<Segment> Receive(uint32_t index) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status SendBack(const Stowed& stowed) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status EndReceiving() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status TakeBack() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] bool Settled() const REWIRE_REQUIRES(mutex_);
  void ChooseStatics() REWIRE_REQUIRES(mutex_);
  void ChooseTurns() REWIRE_REQUIRES(mutex_);
  void JudgeLastRound() REWIRE_REQUIRES(mutex_);
  void MeasureLastRound() REWIRE_REQUIRES(mutex_);
  // nullopt: the device is not there yet, which says nothing about copies.
  [[nodiscard]] std::optional<bool> WasLate(std::span<const CUevent> waits,
                                            std::span<const CUevent> there) const;
  [[nodiscard]] bool backward() const REWIRE_REQUIRES(mutex_) { return round_ % 2 != 0; }
  [[nodiscard]] BalancerCounts Counts() const REWIRE_REQUIRES(mutex_);

  // On the balancer's own thread.
  void Run();
  void PlanRound() REWIRE_REQUIRES(mutex_);
  void GiveWhatIsDue(Time now) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status AwaitRoom(uint32_t helper, uint64_t used) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] Weights WeightsOf(const Stowed& stowed) const;
  void JudgeStay() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status Copy(const Stowed& stowed) REWIRE_REQUIRES(mutex_);
  // There is no going on, here and for the others, who may wait for this process. The first reason
  // stays.
  absl::Status Break(absl::Status status) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status CheckLost() REWIRE_REQUIRES(mutex_);

  // On a thread that never waits for mutex_: whoever holds it may be in a call that waits for what
  // this thread lets go.
  void Look();
  void SetLost(uint32_t rank);

  const CudaDriver& cuda_;
  const NodeGroup group_;
  const Shape shape_;
  const BalancerOptions options_;
  const CUcontext context_;
  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<NodePage> page_;
  std::unique_ptr<CopyQueue> out_;     // to helpers: Open(), then the own thread
  std::unique_ptr<CopyQueue> back_;    // to owners: the caller's thread
  std::unique_ptr<CopyQueue> let_go_;  // the looking thread
  // On the caller's stream: the round begins; Statics() are computed; it waits, and has what it
  // waited for: each of what it receives, and at the end what comes back.
  CUevent begun_ = nullptr, closed_ = nullptr, collects_ = nullptr, collected_ = nullptr;
  std::vector<CUevent> waits_, there_;
  CUevent gives_begin_ = nullptr, gives_end_ = nullptr;  // the round's copies, on out_
  CUevent computed_ = nullptr;  // a received segment, on the caller's stream
  CUevent returned_ = nullptr;  // what was computed for others, on back_

  // Of the round. Between Begin..() and Close() the own thread uses them, too, with mutex_ held, as
  // the caller's does when it changes them.
  RoundInput input_;
  std::vector<uint64_t> offsets_;  // of each own expert's rows
  std::vector<uint8_t> dynamic_;
  std::vector<Segment> statics_;
  std::vector<Segment> own_;  // the others, in the order in which they are computed
  Moved before_;              // of the forward round, in a backward one
  Moved moved_;

  Mutex mutex_;
  Stage stage_ REWIRE_GUARDED_BY(mutex_) = Stage::kIdle;
  uint64_t round_ REWIRE_GUARDED_BY(mutex_) = 0;  // its key: 2 * number + backward
  bool planned_ REWIRE_GUARDED_BY(mutex_) = true;
  bool begin_awaited_ REWIRE_GUARDED_BY(mutex_) = false;  // by out_
  std::vector<Give> gives_ REWIRE_GUARDED_BY(mutex_);
  std::vector<Stowed> received_ REWIRE_GUARDED_BY(mutex_);
  std::vector<Turn> turns_ REWIRE_GUARDED_BY(mutex_);
  size_t turn_ REWIRE_GUARDED_BY(mutex_) = 0;                // the next
  LentSlots mine_ REWIRE_GUARDED_BY(mutex_);                 // what others have put here
  std::vector<LentSlots> theirs_ REWIRE_GUARDED_BY(mutex_);  // what this process has put there
  std::vector<uint8_t> stay_;  // of each layer: what was put there forward is found there backward
  std::vector<Posting> postings_;  // owned by the balancer's thread from its start
  bool judge_received_ REWIRE_GUARDED_BY(mutex_) = false;
  bool judge_given_ REWIRE_GUARDED_BY(mutex_) = false;
  Time in_order_until_ REWIRE_GUARDED_BY(mutex_);        // copies wait for those planned before
  uint64_t given_before_ REWIRE_GUARDED_BY(mutex_) = 0;  // bytes, before the round
  uint64_t static_rows_ REWIRE_GUARDED_BY(mutex_) = 0;
  Speeds speeds_ REWIRE_GUARDED_BY(mutex_);
  Speeds nodes_speeds_ REWIRE_GUARDED_BY(mutex_);  // as last planned with
  Lateness lateness_ REWIRE_GUARDED_BY(mutex_);
  BalancerCounts counts_ REWIRE_GUARDED_BY(mutex_);
  CountsPart reported_ REWIRE_GUARDED_BY(mutex_);
  absl::Status status_ REWIRE_GUARDED_BY(mutex_);
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;

  std::atomic<int> lost_{-1};  // a rank, once one is; set before any stream is let go
  Mutex look_mutex_;
  CondVar look_soon_;
  bool stop_looking_ REWIRE_GUARDED_BY(look_mutex_) = false;
  std::thread looking_;
};

}  // namespace rewire::moe
