// The C interface's update boundary: the fast path, and the slow path for a pending change. Owned
// by the program's thread.
#include "absl/strings/str_cat.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/elastic/participant/context.h"
#include "reconfig/elastic/participant/process.h"

namespace rewire::elastic {

constexpr char kCallback[] = "a callback of rewireSetParallel()";

namespace {

// Costs little: also updates that pass at once come here.
void FillOutcome(const rewireContext& context, const BoundaryResult& result,
                 rewireOutcome_t* outcome) {
  if (outcome == nullptr) return;
  switch (result.kind) {
    case ResumeKind::kContinue:
      outcome->kind = rewireContinue;
      break;
    case ResumeKind::kWorldChanged:
      outcome->kind = rewireWorldChanged;
      break;
    case ResumeKind::kRepeat:
      outcome->kind = rewireRepeat;
      break;
    case ResumeKind::kLeave:
      outcome->kind = rewireLeave;
      break;
  }
  outcome->world = context.world;
  outcome->world.size = sizeof(rewireWorld_t);
  // A rebuild is a new epoch, and stops no update.
  if (context.participant != nullptr) outcome->world.epoch = context.participant->epoch();
  outcome->pause_ns = result.pause_ns;
  outcome->bytes_in = result.bytes_in;
  outcome->bytes_out = result.bytes_out;
}

}  // namespace

rewireResult_t StillMember(const char* function, const rewireContext& context) {
  if (CurrentParticipant() == context.participant) return rewireSuccess;
  if (InForkedChild()) return RefuseForkedChild(function);
  return Fail(rewireInvalidUsage, absl::StrCat(function, ": context has been detached"));
}

std::string ContextCall::Begin(rewireContext* context, const char* function) {
  static thread_local const char thread = 0;  // its address is the thread's identity
  if (ProgramCalls::Inside()) return absl::StrCat("called inside ", kCallback);
  const void* other = nullptr;
  if (context->caller.compare_exchange_strong(other, &thread)) {
    context->function = function;
    context_ = context;
    return "";
  }
  if (other == &thread) return absl::StrCat("called inside ", context->inside);
  return absl::StrCat("another thread is inside ", context->function.load(),
                      "(), and a context is owned by one thread");
}

rewireResult_t RefuseForkedChild(const char* function) {
  return Fail(
      rewireInvalidUsage,
      absl::StrCat(function, ": this process is a forked child of a member and not a member"));
}

}  // namespace rewire::elastic

using rewire::Fail;
using rewire::elastic::ContextArguments;

using rewire::elastic::kCallback;

extern "C" {

rewireResult_t rewireUpdate(rewireContext_t context, rewireUpdateFn update, void* arg,
                            rewireOutcome_t* outcome) noexcept {
  const rewire::PostponedCancellation postponed;
  ContextArguments arguments("rewireUpdate");
  rewire::elastic::ContextCall call;
  arguments.Context(context).NotForked(context).NotNull("update",
                                                        reinterpret_cast<const void*>(update));
  if (outcome != nullptr) arguments.Sized("outcome", "rewireOutcome_t", outcome);
  arguments.Alone(context, &call);
  if (arguments.result() != rewireSuccess) return arguments.result();
  if (!context->update_called) {
    if (!context->sharded.empty() && context->zero_stage == 0) {
      return Fail(
          rewireInvalidUsage,
          absl::StrCat("rewireUpdate: tensor ", context->sharded,
                       " is sharded: rewireSetParallel() with zero_stage=1 must come first"));
    }
    if (!context->by_layout.empty() && !context->has_layout) {
      return Fail(rewireInvalidUsage,
                  absl::StrCat("rewireUpdate: tensor ", context->by_layout,
                               " is rewireByLayout: rewireSetParallel() with the callback layout "
                               "must come first"));
    }
    context->update_called = true;
    // The objects that the callbacks use exist by now, and so do the exit handlers of NCCL.
    if (context->participant != nullptr) rewire::elastic::EndUseAtExit();
  }
  rewire::elastic::UpdateGate* const gate = context->boundary;
  const bool pending = !gate->Begin();
  if (!pending) {
    rewire::elastic::FillOutcome(*context, {}, outcome);
  } else {
    if (const rewireResult_t wrong = rewire::elastic::StillMember("rewireUpdate", *context);
        wrong != rewireSuccess) {
      return wrong;
    }
    context->inside = kCallback;
    const auto passed = context->participant->PassBoundary();
    context->inside = nullptr;
    if (!passed.ok()) return Fail(passed.status());
    if (outcome == nullptr && passed->kind != rewire::elastic::ResumeKind::kContinue) {
      return Fail(rewireInvalidArgument,
                  "rewireUpdate: outcome=NULL: must be set, because the world has changed");
    }
    rewire::elastic::FillWorld(context->View(), rewire::elastic::MemberOf(*context),
                               &context->world);
    rewire::elastic::FillOutcome(*context, *passed, outcome);
    if (passed->kind == rewire::elastic::ResumeKind::kRepeat ||
        passed->kind == rewire::elastic::ResumeKind::kLeave) {
      return rewireSuccess;
    }
  }
  context->inside = "the update function";
  const int failed = update(arg);
  context->inside = nullptr;
  if (failed == rewireUnchanged) {
    gate->Withdraw();
    return Fail(rewireUnavailable,
                "rewireUpdate: the update function returned rewireUnchanged: the update was not "
                "applied (after a loss, rewireRecover() keeps the state)");
  }
  if (failed != 0) {
    gate->Failed();
    return Fail(rewireUnavailable,
                absl::StrCat("rewireUpdate: the update function returned ", failed,
                             " (after a loss, rewireRecover() restores the "
                             "state from before the update)"));
  }
  if (gate->End()) context->participant->AfterUpdate();
  return rewireSuccess;
}

rewireResult_t rewireRecover(rewireContext_t context, rewireOutcome_t* outcome) noexcept {
  const rewire::PostponedCancellation postponed;
  rewire::elastic::ContextCall call;
  const rewireResult_t wrong = ContextArguments("rewireRecover")
                                   .Context(context)
                                   .Alone(context, &call)
                                   .Sized("outcome", "rewireOutcome_t", outcome)
                                   .result();
  if (wrong != rewireSuccess) return wrong;
  if (context->participant == nullptr) {
    return Fail(rewireUnavailable, "rewireRecover: there is no agent (REWIRE_SOCKET is not set)");
  }
  if (const rewireResult_t gone = rewire::elastic::StillMember("rewireRecover", *context);
      gone != rewireSuccess) {
    return gone;
  }
  context->inside = kCallback;
  const auto recovered = context->participant->Recover();
  context->inside = nullptr;
  if (!recovered.ok()) return Fail(recovered.status());
  rewire::elastic::FillWorld(context->View(), rewire::elastic::MemberOf(*context), &context->world);
  rewire::elastic::FillOutcome(*context, *recovered, outcome);
  return rewireSuccess;
}

}  // extern "C"
