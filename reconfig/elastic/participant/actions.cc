// Performs the actions of the member's state machine; see participant.h. Owned by the member's
// thread.
#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/elastic/participant/participant.h"
#include "reconfig/elastic/participant/reclaim.h"

namespace rewire::elastic {
namespace {

// The name under which a member publishes its memory offer. No program's name begins with a zero
// byte.
constexpr std::string_view kOfferName{"\0offer", 6};

}  // namespace

void Participant::Perform(Time now, const MemberAction& action) {
  Communicators* const comms = GetCommunicators();
  if (const auto* a = std::get_if<SendMessage>(&action)) {
    link_.Send(now, a->message);
  } else if (const auto* a = std::get_if<EnterWorld>(&action)) {
    OnEnterWorld(*a);
  } else if (const auto* a = std::get_if<MintIds>(&action)) {
    for (const CommunicatorId& id : a->communicators) {
      absl::StatusOr<UniqueIdBytes> minted =
          absl::FailedPreconditionError("make a unique id: this process has no communicators");
      if (comms != nullptr) minted = comms->Mint(id);
      inbox_->Post([epoch = a->epoch, id, minted](Member* m, Time t, Member::Out* out) {
        m->OnMinted(t, epoch, id, minted, out);
      });
    }
  } else if (const auto* a = std::get_if<MakePlan>(&action)) {
    OnMakePlan(*a);
  } else if (const auto* a = std::get_if<BuildGenerations>(&action)) {
    OnBuild(*a);
  } else if (const auto* a = std::get_if<PledgeCuts>(&action)) {
    OnPledgeCuts(*a);
  } else if (const auto* a = std::get_if<PledgeBoundary>(&action)) {
    std::optional<CutRefusal> refusal;
    if (!gate_.Pledge(a->step)) {
      refusal =
          CutRefusal{kUpdateBoundary, absl::StrCat("the program has already begun update ",
                                                   gate_.begun(), ": proposed step=", a->step)};
    }
    inbox_->Post(
        [this, epoch = a->epoch, round = a->round, refusal](Member* m, Time t, Member::Out* out) {
          m->OnPledged(t, epoch, round, refusal, Counters(), out);
        });
  } else if (const auto* a = std::get_if<DecideCuts>(&action)) {
    if (comms != nullptr) comms->Decide(a->epoch, a->go);
    if (!a->go) return;
    inbox_->Post([epoch = a->epoch](Member* m, Time t, Member::Out* out) {
      m->OnPositions(t, Positions(), out);
      m->OnEntered(t, epoch, 0, out);
    });
  } else if (std::get_if<ReleaseBoundary>(&action) != nullptr) {
    gate_.Release();
  } else if (const auto* a = std::get_if<StartStream>(&action)) {
    streamed_version_ = a->step;
    gate_.SetNotify(true);
    if (reshape_ != nullptr) reshape_->Start(a->step);
  } else if (std::get_if<FinishStream>(&action) != nullptr) {
    if (reshape_ != nullptr) reshape_->Finish();
  } else if (std::get_if<DescribeBoundary>(&action) != nullptr) {
    if (!standing_) return;
    inbox_->Post([this](Member* m, Time t, Member::Out* out) {
      if (standing_) m->OnBoundary(t, Describe(), out);
    });
  } else if (const auto* a = std::get_if<RestoreFrom>(&action)) {
    const std::vector<MemberId>& in_place = a->sources.live;
    const bool live =
        std::find(in_place.begin(), in_place.end(), options_.member) != in_place.end();
    // State that is written in place from here on has no version until the commit.
    if (!live) gate_.Failed();
    if (reshape_ != nullptr) reshape_->Restore(a->version, a->sources);
  } else if (const auto* a = std::get_if<Adopt>(&action)) {
    OnAdopt(*a);
  } else if (const auto* a = std::get_if<AbandonEpoch>(&action)) {
    REWIRE_INFO("the transition to epoch %llu was aborted: %s",
                static_cast<unsigned long long>(a->epoch), a->reason.c_str());
    streamed_version_ = kNone;
    gate_.SetNotify(false);
    LetGo(std::exchange(reshape_, nullptr));
    if (comms != nullptr) comms->Abandon(a->epoch);
  } else if (const auto* a = std::get_if<RetireGenerations>(&action)) {
    if (comms != nullptr) comms->Retire(a->generations);
  } else if (const auto* a = std::get_if<AbortCurrent>(&action)) {
    REWIRE_WARN("%s", a->reason.c_str());
    if (comms != nullptr) comms->AbortCurrent(a->reason);
    moved_.store(true);
    if (snapshots_ != nullptr) snapshots_->Freeze();
    gate_.SetBroken();
  } else if (const auto* a = std::get_if<Resume>(&action)) {
    if (a->kind == ResumeKind::kLeave) {
      MutexLock lock(&mutex_);
      drained_ = true;
    }
    gate_.Resume(a->kind);
  } else if (const auto* a = std::get_if<StopProcess>(&action)) {
    REWIRE_ERROR("this process is no longer part of the job: %s", a->reason.c_str());
    LetGo(std::exchange(reshape_, nullptr));
    stopped_ = true;
    if (comms != nullptr) comms->AbortCurrent(a->reason);
    Finish(a->reason);
    ReclaimWatch::Reconsider();  // no drain comes any more: SIGTERM ends the process
    link_.Drop(now);
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }
}

void Participant::OnEnterWorld(const EnterWorld& action) {
  if (transport_ != nullptr) {
    transport_->AnswerNames(action.names_key,
                            [this](std::string_view name) { return names_.Find(name); });
  }
  if (action.joining) gate_.SetJoining();
  MutexLock lock(&mutex_);
  view_ =
      WorldView{action.world, action.world.SlotOf(options_.member), action.joining, action.leaving};
  names_key_ = action.names_key;
  secret_ = action.secret;
  changed_.NotifyAll();
}

void Participant::OnMakePlan(const MakePlan& action) {
  if (reshape_ != nullptr) LetGo(std::exchange(reshape_, nullptr));
  const auto inbox = inbox_;
  const Epoch epoch = action.epoch;
  if (transport_ == nullptr) {
    inbox->Post([epoch](Member* m, Time t, Member::Out* out) {
      m->OnPlanned(t, epoch,
                   absl::FailedPreconditionError(
                       "plan: the program does not use Rewire's C API (no rewireAttach)"),
                   out);
    });
    return;
  }
  ReshapeContext context;
  context.wait_state = [this](Time deadline) { return WaitReady(deadline); };
  context.self = options_.member;
  context.transport = transport_.get();
  context.budget = &budget_;
  context.snapshots = snapshots_.get();
  context.boundary = options_.boundary;
  context.build = options_.build;
  context.check_shapes = [this, from = action.from] {
    const absl::Status moved = CheckAllocations();
    return moved.ok() ? CheckShapes(from) : moved;
  };
  context.peer_copy = options_.peer_copy;
  context.publish_offer = [this](const std::string& offer) {
    names_.Publish(std::string(kOfferName), offer);
  };
  context.ask_offer = [this](const WorldMember& source) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::optional<std::string>> answer = Ask(source, kOfferName);
    if (!answer.ok()) return answer.status();
    return answer->value_or("");
  };
  context.wait_version = [this](uint64_t version, Time deadline) {
    return gate_.WaitVersion(version, deadline);
  };
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

void Participant::OnBuild(const BuildGenerations& action) {
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

void Participant::OnPledgeCuts(const PledgeCuts& action) {
  Communicators* const comms = GetCommunicators();
  std::optional<CutRefusal> refusal;
  if (comms != nullptr) {
    refusal = comms->Pledge(action.epoch, action.cuts);
  } else if (!action.cuts.empty()) {
    refusal =
        CutRefusal{action.cuts.front().communicator, "the member's process has no communicators"};
  }
  inbox_->Post([this, epoch = action.epoch, round = action.round, refusal](Member* m, Time t,
                                                                           Member::Out* out) {
    m->OnPledged(t, epoch, round, refusal, Counters(), out);
  });
}

void Participant::OnAdopt(const Adopt& action) {
  if (action.kind != TransitionKind::kSwap) {
    if (Communicators* const comms = GetCommunicators()) comms->SwapNow(action.record.world.epoch);
    moved_.store(true);
    streamed_version_ = kNone;
    gate_.SetNotify(false);
  }
  MutexLock lock(&mutex_);
  secret_ = action.record.secret;
  view_ = WorldView{action.record.world, action.slot, false};
  if (action.kind == TransitionKind::kSwap) return;
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
