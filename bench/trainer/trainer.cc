#include "bench/trainer/trainer.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "bench/trainer/fixed_point.h"
#include "bench/trainer/update.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

const char* Name(rewireOutcomeKind_t kind) {
  switch (kind) {
    case rewireContinue:
      return "continue";
    case rewireWorldChanged:
      return "world_changed";
    case rewireRepeat:
      return "repeat";
    case rewireLeave:
      return "leave";
  }
  return "unknown";
}

}  // namespace

double Trainer::Loss() const {
  return FromFixed(state_.progress.loss_sum) / (args_.batch * args_.accumulate);
}

absl::StatusOr<rewireOutcome_t> Trainer::Boundary() {
  const std::function<absl::Status()> update = [this] { return ApplyUpdate(args_, state_, comm_); };
  if (session_ != nullptr) return session_->Update(update);
  REWIRE_RETURN_IF_ERROR(update());
  rewireOutcome_t outcome{};
  outcome.kind = rewireContinue;
  return outcome;
}

absl::StatusOr<rewireOutcome_t> Trainer::Recover(const absl::Status& why) {
  if (session_ == nullptr) return why;
  absl::StatusOr<rewireOutcome_t> outcome = session_->Recover();
  if (!outcome.ok()) {
    return absl::Status(
        outcome.status().code(),
        absl::StrCat(std::string(why.message()), "; ", std::string(outcome.status().message())));
  }
  return outcome;
}

absl::Status Trainer::ThrowAway(uint64_t step, const rewireOutcome_t& outcome) {
  thrown_ = thrown_step_ == step ? thrown_ + 1 : 1;
  thrown_step_ = step;
  epoch_ = outcome.world.epoch;
  comm_.ForgetError();
  log_.Event("repeat", step, epoch_, outcome.pause_ns);
  return state_.RefreshWeights();
}

void Trainer::LogStep(const Start& start, const rewireOutcome_t& outcome) {
  StepRow row;
  row.step = state_.progress.step - 1;
  row.loss = Loss();
  row.step_ns = MonotonicNs() - start.wall_ns;
  row.cpu_ns = ThreadCpuNs() - start.cpu_ns;
  row.slots = state_.slots;
  row.slot = state_.slot;
  row.epoch = epoch_;
  row.outcome = Name(outcome.kind);
  row.repeats = thrown_step_ == row.step ? thrown_ : 0;
  row.pause_ns = outcome.pause_ns;
  row.bytes_in = outcome.bytes_in;
  row.bytes_out = outcome.bytes_out;
  log_.Step(row);
}

absl::StatusOr<Trainer::End> Trainer::Run(bool joining) {
  bool first = true;
  if (session_ != nullptr) {
    REWIRE_ASSIGN_OR_RETURN(const rewireWorld_t world, session_->World());
    epoch_ = world.epoch;
  }
  while (state_.progress.step < args_.LastStep()) {
    const Start start{MonotonicNs(), ThreadCpuNs()};
    const uint64_t step = state_.progress.step;
    const absl::Status reduced = joining ? absl::OkStatus() : pass_.Run(state_, comm_);
    joining = false;
    absl::StatusOr<rewireOutcome_t> ended = reduced.ok() ? Boundary() : Recover(reduced);
    const bool failed = !reduced.ok() || !ended.ok();
    // The update also reduces and gathers: a loss may first appear there.
    if (reduced.ok() && !ended.ok()) ended = Recover(ended.status());
    REWIRE_ASSIGN_OR_RETURN(const rewireOutcome_t outcome, std::move(ended));
    if (outcome.kind == rewireLeave) {
      log_.Event("leave", step, outcome.world.epoch, outcome.pause_ns);
      return End::kLeft;
    }
    if (outcome.kind == rewireRepeat || failed) {
      REWIRE_RETURN_IF_ERROR(ThrowAway(step, outcome));
      continue;
    }
    if (session_ != nullptr) epoch_ = outcome.world.epoch;
    LogStep(start, outcome);
    state_.FreeOldParts();
    if (first) log_.Phase("first_step", MonotonicNs());
    first = false;
    if (state_.progress.stop > 0) break;
  }
  return End::kDone;
}

}  // namespace rewire::trainer
