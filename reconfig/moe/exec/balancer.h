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
  [[nodiscard]] const std::vector<Segment>& Statics() const { return statics_; }
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
  // The first 1/kInOrder of `patience` is reserved for helpers whose copies are planned first.
  static constexpr int kInOrder = 4;
  enum class Stage { kIdle, kBegun, kComputing, kComputed };  // the call that comes next
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
  // nullopt: the device has not reached the events yet, so nothing is known about copies.
  [[nodiscard]] std::optional<bool> WasLate(std::span<const CUevent> waits,
                                            std::span<const CUevent> there) const;
  [[nodiscard]] bool backward() const REWIRE_REQUIRES(mutex_) { return round_ % 2 != 0; }
  [[nodiscard]] BalancerCounts Counts() const REWIRE_REQUIRES(mutex_);

  // Run on the balancer's own thread.
  void Run();
  void PlanRound() REWIRE_REQUIRES(mutex_);
  void GiveWhatIsDue(Time now) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status AwaitRoom(uint32_t helper, uint64_t used) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] Weights WeightsOf(const Stowed& stowed) const;
  void JudgeStay() REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status Copy(const Stowed& stowed) REWIRE_REQUIRES(mutex_);
  // Stops the balancer here and on the others, which may wait for this process. Keeps the first
  // reason.
  absl::Status Break(absl::Status status) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] absl::Status CheckLost() REWIRE_REQUIRES(mutex_);

  // Run on the looking thread, which never waits for mutex_: a thread that holds mutex_ may wait
  // until the looking thread releases streams.
  void Look();
  void SetLost(uint32_t rank);

  const CudaDriver& cuda_;
  const NodeGroup group_;
  const Shape shape_;
  const BalancerOptions options_;
  const CUcontext context_;
  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<NodePage> page_;
  // to helpers: Open(), then the balancer's thread
  std::unique_ptr<CopyQueue> out_;
  std::unique_ptr<CopyQueue> back_;    // to owners; owned by the caller's thread
  std::unique_ptr<CopyQueue> let_go_;  // owned by the looking thread
  // Events on the caller's stream: the round begins; Statics() are computed; waits begin and end,
  // for each received segment and for the results at the end.
  CUevent begun_ = nullptr, closed_ = nullptr, collects_ = nullptr, collected_ = nullptr;
  std::vector<CUevent> waits_, there_;
  CUevent gives_begin_ = nullptr, gives_end_ = nullptr;  // around the round's copies, on out_
  CUevent computed_ = nullptr;  // a received segment is computed, on the caller's stream
  CUevent returned_ = nullptr;  // results for others were sent back, on back_

  // The round's data. Between Begin..() and Close(), the balancer's thread also reads the data, and
  // every change or read there holds mutex_.
  RoundInput input_;
  std::vector<uint64_t> offsets_;  // the first row of each own expert
  std::vector<uint8_t> dynamic_;
  std::vector<Segment> statics_;
  std::vector<Segment> own_;  // the other own segments, in the order of computation
  Moved before_;              // from the forward round, in a backward round
  Moved moved_;

  Mutex mutex_;
  Stage stage_ REWIRE_GUARDED_BY(mutex_) = Stage::kIdle;
  uint64_t round_ REWIRE_GUARDED_BY(mutex_) = 0;  // the round's key: 2 * number + backward
  bool planned_ REWIRE_GUARDED_BY(mutex_) = true;
  bool begin_awaited_ REWIRE_GUARDED_BY(mutex_) = false;  // out_ waits for begun_
  std::vector<Give> gives_ REWIRE_GUARDED_BY(mutex_);
  std::vector<Stowed> received_ REWIRE_GUARDED_BY(mutex_);
  std::vector<Turn> turns_ REWIRE_GUARDED_BY(mutex_);
  size_t turn_ REWIRE_GUARDED_BY(mutex_) = 0;  // the next turn
  LentSlots mine_ REWIRE_GUARDED_BY(mutex_);   // what others have put into own slots
  // own weights in others' slots
  std::vector<LentSlots> theirs_ REWIRE_GUARDED_BY(mutex_);
  std::vector<uint8_t> stay_;      // per layer: weights sent forward were still there backward
  std::vector<Posting> postings_;  // owned by the balancer's thread from its start
  bool judge_received_ REWIRE_GUARDED_BY(mutex_) = false;
  bool judge_given_ REWIRE_GUARDED_BY(mutex_) = false;
  // copies wait for earlier ones
  Time in_order_until_ REWIRE_GUARDED_BY(mutex_);
  uint64_t given_before_ REWIRE_GUARDED_BY(mutex_) = 0;  // bytes given before the round
  uint64_t static_rows_ REWIRE_GUARDED_BY(mutex_) = 0;
  Speeds speeds_ REWIRE_GUARDED_BY(mutex_);
  Speeds nodes_speeds_ REWIRE_GUARDED_BY(mutex_);  // speeds of the last plan
  Lateness lateness_ REWIRE_GUARDED_BY(mutex_);
  BalancerCounts counts_ REWIRE_GUARDED_BY(mutex_);
  CountsPart reported_ REWIRE_GUARDED_BY(mutex_);
  absl::Status status_ REWIRE_GUARDED_BY(mutex_);
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;

  // a lost rank; set before streams are released
  std::atomic<int> lost_{-1};
  Mutex look_mutex_;
  CondVar look_soon_;
  bool stop_looking_ REWIRE_GUARDED_BY(look_mutex_) = false;
  std::thread looking_;
};

}  // namespace rewire::moe
