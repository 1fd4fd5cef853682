// Performs the actions of the member's state machine; see participant.h. Owned by the member's
// thread.
#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/elastic/participant/participant.h"
#include "reconfig/elastic/participant/process.h"
#include "reconfig/elastic/participant/reclaim.h"

namespace rewire::elastic {

void Participant::Perform(Time now, const MemberAction& action) {
  std::visit([&](const auto& a) { Do(now, a); }, action);
}

void Participant::Do(Time now, const SendMessage& action) { link_.Send(now, action.message); }

void Participant::Do(Time /*now*/, const MintIds& action) {
  Communicators* const comms = GetCommunicators();
  for (const CommunicatorId& id : action.communicators) {
    absl::StatusOr<UniqueIdBytes> minted =
        absl::FailedPreconditionError("make a unique id: this process has no communicators");
    if (comms != nullptr) minted = comms->Mint(id);
    inbox_->Post([epoch = action.epoch, id, minted](Member* m, Time t, Member::Out* out) {
      m->OnMinted(t, epoch, id, {}, minted, out);
    });
  }
}

CutRefusal Participant::UpdateBegun(uint64_t step) const {
  return {kUpdateBoundary, absl::StrCat("the program is at, or has begun, update ", gate_.begun(),
                                        ": proposed step=", step)};
}

void Participant::Do(Time /*now*/, const PledgeBoundary& action) {
  std::optional<CutRefusal> refusal;
  if (!gate_.Pledge(action.step)) refusal = UpdateBegun(action.step);
  inbox_->Post([this, epoch = action.epoch, round = action.round, refusal](Member* m, Time t,
                                                                           Member::Out* out) {
    m->OnPledged(t, epoch, round, refusal, Counters(), out);
  });
}

void Participant::Do(Time /*now*/, const DecideCuts& action) {
  if (Communicators* const comms = GetCommunicators()) comms->Decide(action.epoch, action.go);
  gate_.DecideSwap(action.epoch, action.go);
  if (!action.go) return;
  inbox_->Post([epoch = action.epoch](Member* m, Time t, Member::Out* out) {
    m->OnPositions(t, Positions(), out);
    m->OnEntered(t, epoch, 0, out);
  });
}

void Participant::Do(Time /*now*/, const ReleaseBoundary& /*action*/) { gate_.Release(); }

void Participant::Do(Time /*now*/, const StartStream& action) {
  snapshots_.SetStreamed(action.step);
  if (reshape_ != nullptr) reshape_->Start(action.step);
}

void Participant::Do(Time /*now*/, const FinishStream& /*action*/) {
  if (reshape_ != nullptr) reshape_->Finish();
}

void Participant::Do(Time /*now*/, const DescribeBoundary& /*action*/) {
  if (!standing_) return;
  inbox_->Post([this](Member* m, Time t, Member::Out* out) {
    if (standing_ && !Adopting()) m->OnBoundary(t, Describe(), out);
  });
}

void Participant::Do(Time /*now*/, const RestoreFrom& action) {
  const std::vector<MemberId>& in_place = action.sources.live;
  const bool live = std::find(in_place.begin(), in_place.end(), options_.member) != in_place.end();
  // State that is written in place from here on has no version until the commit.
  if (!live) gate_.Failed();
  if (reshape_ != nullptr) reshape_->Restore(action.version, action.sources, kept_may_change_);
}

void Participant::Do(Time /*now*/, const AbandonEpoch& action) {
  REWIRE_INFO("the transition to epoch %llu was aborted: %s",
              static_cast<unsigned long long>(action.epoch), action.reason.c_str());
  snapshots_.ClearStreamed();
  Discard(std::exchange(reshape_, nullptr));
  if (Communicators* const comms = GetCommunicators()) comms->Abandon(action.epoch);
}

void Participant::Do(Time /*now*/, const RetireGenerations& action) {
  if (Communicators* const comms = GetCommunicators()) comms->Retire(action.generations);
}

void Participant::Do(Time /*now*/, const AbortCurrent& action) {
  REWIRE_WARN("%s", action.reason.c_str());
  if (Communicators* const comms = GetCommunicators()) {
    comms->SetLiving(action.living);
    comms->AbortCurrent(action.reason);
  }
  moved_.store(true);
  snapshots_.EndWorld();
}

void Participant::Do(Time /*now*/, const Resume& action) {
  if (action.kind == ResumeKind::kLeave) {
    MutexLock lock(&mutex_);
    drained_ = true;
  }
  gate_.Resume(action.kind);
}

void Participant::Do(Time now, const StopProcess& action) {
  REWIRE_ERROR("this process is no longer part of the job: %s", action.reason.c_str());
  Discard(std::exchange(reshape_, nullptr));
  stopped_ = true;
  if (Communicators* const comms = GetCommunicators()) {
    comms->SetLiving(1);
    comms->AbortCurrent(action.reason);
  }
  if (View().world.epoch == 0) refusal_ = action.reason;
  Finish(action.reason);
  ReclaimWatch::Reconsider();  // no drain comes any more: SIGTERM ends the process
  link_.Drop(now);
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

void Participant::Do(Time /*now*/, const EnterWorld& action) {
  if (transport_ != nullptr) {
    transport_->AnswerNames(action.names_key,
                            [this](std::string_view name) { return names_.Find(name); });
  }
  if (action.joining) gate_.SetJoining();
  names_.SetKey(action.names_key);
  groups_.EnterWorld(action.world.epoch);
  SetLogEpoch(action.world.epoch);
  epoch_ = action.world.epoch;
  MutexLock lock(&mutex_);
  view_ =
      WorldView{action.world, action.world.SlotOf(options_.member), action.joining, action.leaving};
  secret_ = action.secret;
  changed_.NotifyAll();
}

void Participant::Do(Time /*now*/, const AwaitWorld& action) {
  MutexLock lock(&mutex_);
  missing_ = action.missing;
  changed_.NotifyAll();
}

void Participant::Do(Time /*now*/, const MakePlan& action) {
  if (reshape_ != nullptr) Discard(std::exchange(reshape_, nullptr));
  const auto inbox = inbox_;
  const Epoch epoch = action.epoch;
  absl::Status refused;
  if (ending_) refused = ProgramEnding();
  if (transport_ == nullptr) {
    refused = absl::FailedPreconditionError(
        "plan: the program does not use Rewire's C API (no rewireAttach)");
  }
  if (!refused.ok()) {
    inbox->Post([epoch, refused = std::move(refused)](Member* m, Time t, Member::Out* out) {
      m->OnPlanned(t, epoch, refused, out);
    });
    return;
  }
  ReshapeContext context;
  context.wait_state = [this](Time deadline) { return WaitState(deadline); };
  context.self = options_.member;
  context.transport = transport_.get();
  context.budget = &budget_;
  context.snapshots = snapshots_.snapshotter();
  context.boundary = options_.boundary;
  context.build = options_.build;
  // A lost member does not answer.
  const World& asked = action.kind == TransitionKind::kLoss ? action.to : action.from;
  context.check_shapes = [this, asked] {
    const absl::Status moved = state_.CheckAllocations();
    if (!moved.ok()) return moved;
    return RegisteredState::CheckShapes(asked, options_.member, names_, options_.build,
                                        [this] { return gate_.finished(); })
        .status();
  };
  context.peer_copy = options_.peer_copy;
  context.publish_offer = [this](const std::string& offer) {
    names_.Publish(std::string(kOfferName), offer);
  };
  context.ask_offer = [this](const WorldMember& source) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::optional<std::string>> answer = names_.Ask(source, kOfferName);
    if (!answer.ok()) return answer.status();
    return answer->value_or("");
  };
  context.wait_version = [this](uint64_t version, Time deadline) {
    return gate_.WaitVersion(version, deadline);
  };
  context.mint_groups = [this, action] { return MintGroups(action); };
  context.planned = [inbox, epoch](absl::StatusOr<uint64_t> hash) {
    inbox->Post([epoch, hash = std::move(hash)](Member* m, Time t, Member::Out* out) {
      m->OnPlanned(t, epoch, hash, out);
    });
  };
  context.streamed = [inbox, epoch](absl::Status status, uint64_t in, uint64_t out_bytes) {
    inbox->Post([=, status = std::move(status)](Member* m, Time t, Member::Out* out) {
      m->OnStreamed(t, epoch, status, in, out_bytes, out);
    });
  };
  reshape_ = std::make_shared<Reshape>(std::move(context), action);
}

void Participant::Do(Time /*now*/, const BuildGenerations& action) {
  Communicators* const comms = GetCommunicators();
  // A build may outlive this object, so only the code on the member's thread refers to it.
  const auto done = [inbox = inbox_, this, epoch = action.epoch](absl::Status status) {
    inbox->Post([this, epoch, status = std::move(status)](Member* m, Time t, Member::Out* out) {
      // The leader's choice of cuts depends on the communicators that carry sends or receives.
      m->OnPositions(t, Positions(), out);
      m->OnBuilt(t, epoch, status, Counters(), out);
    });
  };
  if (action.builds.empty()) return done(absl::OkStatus());
  if (comms == nullptr) {
    return done(absl::FailedPreconditionError("build: this process has no communicators"));
  }
  comms->Build(action.epoch, action.builds, action.deadline, done);
}

void Participant::Do(Time /*now*/, const PledgeCuts& action) {
  Communicators* const comms = GetCommunicators();
  std::vector<Cut> cuts = action.cuts;
  const auto boundary = std::find_if(
      cuts.begin(), cuts.end(), [](const Cut& cut) { return cut.communicator == kUpdateBoundary; });
  std::optional<uint64_t> step;
  if (boundary != cuts.end()) {
    step = boundary->cut;
    cuts.erase(boundary);
  }
  std::optional<CutRefusal> refusal;
  if (step && !gate_.PledgeSwap(action.epoch, *step)) {
    refusal = UpdateBegun(*step);
  } else if (comms != nullptr) {
    refusal = comms->Pledge(action.epoch, cuts);
  } else if (!cuts.empty()) {
    refusal = CutRefusal{cuts.front().communicator, "the member's process has no communicators"};
  }
  if (refusal) gate_.DecideSwap(action.epoch, false);
  inbox_->Post([this, epoch = action.epoch, round = action.round, refusal](Member* m, Time t,
                                                                           Member::Out* out) {
    m->OnPledged(t, epoch, round, refusal, Counters(), out);
  });
}

void Participant::Do(Time /*now*/, const Adopt& action) {
  if (action.kind != TransitionKind::kSwap) {
    kept_may_change_ = false;
    if (Communicators* const comms = GetCommunicators()) comms->SwapNow(action.record.world.epoch);
    moved_.store(true);
    snapshots_.ClearStreamed();
    names_.Forget(kGroupName);
    groups_.EnterWorld(action.record.world.epoch);
  }
  SetLogEpoch(action.record.world.epoch);
  epoch_ = action.record.world.epoch;
  MutexLock lock(&mutex_);
  secret_ = action.record.secret;
  view_ = WorldView{action.record.world, action.slot, false};
  if (action.kind == TransitionKind::kSwap) return;
  adopting_ = true;
  adoption_ = Adoption{action.record, action.kind, action.slot, std::exchange(reshape_, nullptr)};
}

std::vector<Position> Participant::Positions() {
  Communicators* const comms = GetCommunicators();
  return comms != nullptr ? comms->Positions() : std::vector<Position>();
}

std::vector<CommunicatorCounter> Participant::Counters() const {
  std::vector<CommunicatorCounter> counters;
  if (Communicators* const comms = GetCommunicators()) counters = comms->Counters();
  counters.push_back({kUpdateBoundary, gate_.begun()});
  return counters;
}

}  // namespace rewire::elastic
