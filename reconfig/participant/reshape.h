// The state's side of one transition: makes the plan, allocates, streams, checks. A thread of its
// own
// ("rewire-stream", low priority) does it, so that the member's thread never waits.
//
// Made, told and let go by the member's thread; Adopt side (Take...) by the program's thread while
// it stands at the boundary. Events come from the job's own thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/c_api.h"
#include "reconfig/plan/plan.h"
#include "reconfig/snapshot/snapshotter.h"
#include "reconfig/stream/intake.h"
#include "reconfig/stream/outflow.h"
#include "reconfig/transition/member_action.h"

namespace rewire {

// A new part of a tensor. Only tensors whose part changes have one.
struct NewPart {
  uint32_t tensor = 0;
  Box box;
  StatePlace place;
};

struct ReshapeContext {
  MemberId self = 0;
  // The program has registered all it will (it is in its first update): the state as it is then.
  // Nothing: not yet.
  struct State {
    bool joining = false;
    std::vector<PlacedTensor> tensors;
    rewireCallbacks_t callbacks = {};
  };
  std::function<std::optional<State>(Time deadline)> wait_state;
  Transport* transport = nullptr;
  Budget* budget = nullptr;
  const Snapshotter* snapshots = nullptr;
  Duration boundary = seconds(30);
  Duration build = seconds(60);
  // Before the plan is made: everybody registered the same tensors, or which one differs.
  std::function<absl::Status()> check_shapes;
  // False: not yet.
  std::function<bool(uint64_t version, Time deadline)> wait_version;
  std::function<void(absl::StatusOr<uint64_t> plan_hash)> planned;
  std::function<void(absl::Status status, uint64_t bytes_in, uint64_t bytes_out)> streamed;
};

class Reshape {
 public:
  Reshape(ReshapeContext context, MakePlan request);
  ~Reshape();  // joins

  void Start(uint64_t step);
  void Finish();
  void Restore(uint64_t version, std::vector<MemberId> live);
  // The epoch will not come, or has come: when it returns the state is neither read nor written any
  // more.
  void Cancel();
  [[nodiscard]] bool finished() const { return finished_.load(); }

  [[nodiscard]] Epoch epoch() const { return request_.epoch; }
  // After finished(), or once streamed() has said ok: what was allocated.
  [[nodiscard]] const std::vector<NewPart>& parts() const { return parts_; }
  [[nodiscard]] uint64_t restored_version() const { return version_; }
  [[nodiscard]] uint64_t bytes_in() const { return intake_ == nullptr ? 0 : intake_->bytes(); }
  [[nodiscard]] uint64_t bytes_out() const {
    return outflow_ == nullptr ? 0 : outflow_->bytes_on_wire();
  }

 private:
  void Run();
  absl::StatusOr<uint64_t> MakeThePlan();
  absl::Status Allocate();
  // Has fresh memory be there before the stream comes.
  absl::Status Touch(const StatePlace& place, uint64_t bytes);
  // Turns the plan into what comes and what goes.
  absl::Status Resolve(const Plan& plan);
  absl::StatusOr<StatePlace> SourceOf(const BoxCopy& copy) const;
  absl::Status StreamChange(uint64_t step);
  absl::Status StreamRestore();
  absl::Status FinishWire();
  // False when cancelled.
  bool WaitFor(const bool* flag);
  [[nodiscard]] bool Cancelled();
  std::vector<Outgoing> Select(bool constant) const;

  const ReshapeContext context_;
  const MakePlan request_;
  const StreamKey key_;
  StateMemory memory_;
  ReshapeContext::State state_;
  std::vector<TensorShape> shapes_;
  std::vector<NewPart> parts_;
  std::vector<StatePlace> targets_;  // where this member's part of each tensor will lie
  std::vector<Outgoing> outgoing_;
  std::unique_ptr<Intake> intake_;
  std::unique_ptr<Outflow> outflow_;
  uint64_t version_ = 0;
  std::vector<MemberId> live_;

  Mutex mutex_;
  CondVar changed_;
  bool start_ REWIRE_GUARDED_BY(mutex_) = false;
  bool finish_ REWIRE_GUARDED_BY(mutex_) = false;
  bool restore_ REWIRE_GUARDED_BY(mutex_) = false;
  bool cancelled_ REWIRE_GUARDED_BY(mutex_) = false;
  uint64_t step_ REWIRE_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> finished_{false};
  std::thread thread_;
};

}  // namespace rewire
