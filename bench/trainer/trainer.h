// The training loop: a gradient pass, then the update boundary, until the last step. With Rewire
// the boundary is rewireUpdate(), and the world may have changed afterwards; without Rewire the
// boundary is the update. Owned by the training thread.
#pragma once

#include "absl/status/statusor.h"
#include "bench/trainer/gradient.h"
#include "bench/trainer/session.h"
#include "bench/trainer/state.h"
#include "bench/trainer/step_log.h"

namespace rewire::trainer {

class Trainer {
 public:
  // session: nullptr without Rewire.
  Trainer(const Args& args, GradientPass& pass, TrainingState& state, Communicator& comm,
          RewireSession* session, StepLog& log)
      : args_(args), pass_(pass), state_(state), comm_(comm), session_(session), log_(log) {}

  enum class End { kDone, kLeft };

  // joining: the run begins with the others' update, whose gradient arrives with it.
  absl::StatusOr<End> Run(bool joining);
  // Returns the loss of the last step.
  [[nodiscard]] double Loss() const;

 private:
  struct Start {
    int64_t wall_ns;
    int64_t cpu_ns;
  };
  // Runs the update boundary, or the recovery from a failed gradient pass.
  absl::StatusOr<rewireOutcome_t> Boundary();
  absl::StatusOr<rewireOutcome_t> Recover(const absl::Status& why);
  absl::Status ThrowAway(uint64_t step, const rewireOutcome_t& outcome);
  void LogStep(const Start& start, const rewireOutcome_t& outcome);

  const Args& args_;
  GradientPass& pass_;
  TrainingState& state_;
  Communicator& comm_;
  RewireSession* session_;
  StepLog& log_;
  uint64_t epoch_ = 0;
  uint64_t thrown_step_ = 0;  // the step whose work was last discarded, and how often
  uint64_t thrown_ = 0;
};

}  // namespace rewire::trainer
