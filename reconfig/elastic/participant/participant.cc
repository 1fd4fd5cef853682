// Runs the member's thread; see participant.h.
#include "reconfig/elastic/participant/participant.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "reconfig/base/check.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/event_loop.h"
#include "reconfig/base/log.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/elastic/participant/process.h"
#include "reconfig/state/plan/needs.h"
#include "reconfig/state/stream/descriptor_server.h"

namespace rewire::elastic {
namespace {

uint64_t NewIncarnation() {
  std::random_device random;
  const uint64_t high = random();
  return high << 32 ^ random() ^ static_cast<uint64_t>(ToNanoseconds(Now().time_since_epoch()));
}

}  // namespace

MemberOptions ParticipantOptions::ForMember() const {
  MemberOptions options;
  options.member = member;
  options.pid = static_cast<uint32_t>(getpid());
  options.cooperates = cooperates;
  options.heartbeat = heartbeat;
  options.boundary = boundary;
  // The others may still build, and then check their state. An agent that has died comes back.
  options.undecided = std::max<Duration>(seconds(60), build + 2 * boundary);
  options.recover = LongestRecovery() + boundary;
  return options;
}

absl::StatusOr<std::unique_ptr<Participant>> Participant::Start(const ParticipantOptions& options) {
  std::unique_ptr<Participant> p(new Participant(options));
  MemberOptions member = options.ForMember();
  member.incarnation = p->incarnation_;
  p->gate_.SetAttention(true);  // the first update shows that all tensors are registered
  if (options.cooperates) {
    state::TcpOptions tcp;
    tcp.member = options.member;
    tcp.incarnation = p->incarnation_;
    tcp.stall = options.boundary / 2;
    auto transport = state::TcpTransport::Start(tcp);
    if (!transport.ok()) return transport.status();
    p->transport_ = std::move(*transport);
    state::Snapshotter::Options snapshots;
    snapshots.buddy = options.buddy;
    snapshots.stall = options.silence;
    snapshots.answers = [names = &p->names_](const WorldMember& m) {
      return !names->NodeOf(m).empty();
    };
    if (options.peer_copy) {
      snapshots.node_of = [names = &p->names_](const WorldMember& m) { return names->NodeOf(m); };
    }
    p->snapshots_.SetSnapshotter(std::make_unique<state::Snapshotter>(
        p->transport_.get(), &p->budget_, std::move(snapshots)));
    member.data_address = p->transport_->address();
  }
  p->member_ = std::make_unique<Member>(member);
  p->thread_ = std::thread([raw = p.get()] { raw->Run(); });
  return p;
}

Participant::Participant(const ParticipantOptions& options)
    : options_(options),
      incarnation_(NewIncarnation()),
      budget_(options.budget_bytes),
      names_({options.member, incarnation_, ""}),
      snapshots_(&gate_, options.silence, 2 * options.heartbeat),
      link_(options.socket) {}

Participant::~Participant() { End(); }

void Participant::End() {
  Finish("the program has detached");
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  sent_events_.End();
  inbox_->event().Wake();
  if (thread_.joinable()) thread_.join();
  inbox_->Close();
  std::list<std::shared_ptr<Reshape>> ended = std::exchange(leaving_, {});
  ended.push_back(std::exchange(reshape_, nullptr));
  {
    MutexLock lock(&mutex_);
    if (adoption_) ended.push_back(std::move(adoption_->reshape));
    adoption_.reset();
  }
  for (const std::shared_ptr<Reshape>& reshape : ended) {
    if (reshape == nullptr) continue;
    reshape->End();
    state_.Discard(reshape->parts());
  }
  ended.clear();
  snapshots_.End();
  transport_.reset();
}

void Participant::Run() {
  pthread_setname_np(pthread_self(), "rewire-member");
  member_thread_.Take();
  TakeShortTurns();
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (stop_) break;
    }
    Time now = Now();
    Member::Out out;
    if (!link_.connected()) {
      witness_.reset();
      MutexLock lock(&mutex_);
      missing_.reset();
    }
    if (!member_->stopped() && link_.TryConnect(now)) {
      witness_ = std::make_unique<DeathWitness>(options_.socket);
      member_->OnConnected(now, &out);
      MutexLock lock(&mutex_);
      was_connected_ = true;
      changed_.NotifyAll();
    }
    if (!link_.foreign().empty()) RefuseAgent();
    Feed(now, &out);

    PollSet turn;
    turn.Add(inbox_->event().fd(), POLLIN);
    if (link_.connected()) turn.Add(link_.fd(), POLLIN | (link_.WantsWrite() ? POLLOUT : 0));
    turn.Until(now + seconds(1));
    turn.Until(member_->NextDeadline());
    if (!link_.connected() && !member_->stopped()) turn.Until(link_.next_try());
    if (!leaving_.empty() || ending_) turn.Until(now + milliseconds(20));
    turn.Wait();
    now = Now();
    if (turn.Ready(inbox_->event().fd()) != 0) inbox_->event().Clear();
    const int ready = link_.connected() ? turn.Ready(link_.fd()) : 0;
    if ((ready & POLLOUT) != 0) link_.Flush(now);
    if (link_.connected() && (ready & ~POLLOUT) != 0) {
      for (const Message& m : link_.Read(now)) member_->OnMessage(now, m, &out);
    }
    Feed(now, &out);
    if (!link_.connected() || !link_.WantsWrite()) sent_events_.NotifySent();
    ReapReshapes();
    // A copy that is being taken reads the state. The next slot's copies are still taken.
    if (ending_ && leaving_.empty() && snapshots_.snapshotter()->WaitTaken(now)) {
      MutexLock lock(&mutex_);
      state_ended_ = true;
      changed_.NotifyAll();
    }
    if (!link_.connected()) {
      MutexLock lock(&mutex_);
      dismissed_ = drained_;
      changed_.NotifyAll();
    }
  }
}

// A member that is in a world keeps training, because its own agent may come back.
void Participant::RefuseAgent() {
  MutexLock lock(&mutex_);
  if (view_) return;
  Finish(link_.foreign());
  changed_.NotifyAll();
}

void Participant::Finish(const std::string& reason) {
  gate_.Finish(reason);
  names_.Close(reason);
}

// Performs the actions in `out` and feeds waiting inputs to the state machine until none is left.
void Participant::Feed(Time now, Member::Out* out) {
  REWIRE_DCHECK(member_thread_.IsThisThread());
  if (now >= counted_ + options_.heartbeat) {
    counted_ = now;
    SetCounter(Counter::kMemberDropped, member_->dropped_messages());
    heartbeat_.counters = ProcessCounters();
  }
  heartbeat_.updates = gate_.begun();
  member_->OnTick(now, heartbeat_, out);
  for (;;) {
    if (member_->connected() && !link_.connected()) member_->OnDisconnected(now, out);
    if (moved_.exchange(false)) member_->OnPositions(now, Positions(), out);
    for (const Input& input : inbox_->TakeAll()) input(member_.get(), now, out);
    if (out->empty()) return;
    Member::Out actions;
    actions.swap(*out);
    for (const MemberAction& action : actions) Perform(now, action);
  }
}

BoundaryInfo Participant::Describe() {
  BoundaryInfo info;
  info.live_version = gate_.version();
  info.live_whole = gate_.whole();
  // The leader needs the state of the copies only after a loss, and checking a copy hashes it.
  const state::Snapshotter* const snapshots = snapshots_.snapshotter();
  if (snapshots != nullptr && gate_.broken()) {
    const SharedLayout layout = state_.layout();
    REWIRE_CHECK(layout != nullptr);  // a program that stands has passed SetReady()
    std::vector<uint32_t> changing;
    for (uint32_t t = 0; t < layout->tensors().size(); ++t) {
      if (layout->tensors()[t].change == state::Change::kVolatile) changing.push_back(t);
    }
    info.live_whole = info.live_whole && snapshots->own().HasWhole(info.live_version, changing);
    info.own_snapshots = snapshots->OwnVersions();
    kept_may_change_ = kept_may_change_ || snapshots->kept().MayChange();
    info.buddy_snapshots = snapshots->BuddyVersions();
    info.needs = state::NeedsOf(*layout);
  }
  return info;
}

void Participant::Discard(std::shared_ptr<Reshape> reshape) {
  if (reshape == nullptr) return;
  reshape->Cancel();
  leaving_.push_back(std::move(reshape));
}

void Participant::ReapReshapes() {
  for (auto it = leaving_.begin(); it != leaving_.end();) {
    if (!(*it)->finished()) {
      ++it;
      continue;
    }
    const std::shared_ptr<Reshape> reshape = std::move(*it);
    it = leaving_.erase(it);
    // FreeLater() keeps this thread free: this thread sends the heartbeats.
    snapshots_.snapshotter()->FreeLater(reshape->TakeSnapshotMemory());
    if (state_.Discard(reshape->parts())) gate_.SetAttention(true);
  }
}

void Participant::Created(const CommunicatorCreated& created) {
  CommunicatorCreated described = created;
  groups_.Describe(&described);
  inbox_->Post([this, described](Member* m, Time now, Member::Out* out) {
    m->OnCommunicatorCreated(now, described, out);
    // The agent's refusal may arrive before or after the process's first communicators.
    if (Communicators* const all = GetCommunicators(); all != nullptr && !refusal_.empty()) {
      all->AbortCurrent(refusal_);
    }
  });
}

void Participant::Destroyed(const CommunicatorId& communicator, uint32_t rank) {
  inbox_->Post([communicator, rank](Member* m, Time now, Member::Out* out) {
    m->OnCommunicatorDestroyed(now, communicator, rank, out);
  });
}

void Participant::Pinned(const CommunicatorId& communicator, const std::string& reason) {
  inbox_->Post([communicator, reason](Member* m, Time now, Member::Out* out) {
    m->OnCommunicatorPinned(now, communicator, reason, out);
  });
}

void Participant::AwaitSent(Time deadline) {
  const uint64_t call = sent_events_.Ask();
  inbox_->Post([this, call](Member*, Time, Member::Out*) { sent_events_.Reach(call); });
  sent_events_.Await(call, deadline);
}

void Participant::Moved() {
  moved_.store(true);
  inbox_->event().Wake();
}

bool Participant::ComesWithBuild(const CommunicatorId& communicator) {
  return View().joining && names_.GaveOut(communicator);
}

bool Participant::Reclaim(Duration within) {
  const WorldView view = View();
  if (!view.slot || view.joining || stopped_) return false;
  inbox_->Post([within](Member* m, Time now, Member::Out* out) { m->OnReclaim(now, within, out); });
  return true;
}

void Participant::EndProgram(Time deadline) {
  if (!state_.calls()->Close(deadline)) {
    REWIRE_WARN("exit: a callback of rewireSetParallel() did not return within %lld ms",
                static_cast<long long>(ToMilliseconds(kProgramEnd)));
  }
  // A callback that has called exit() does not return, and its change has no end.
  if (ProgramCalls::Inside() || transport_ == nullptr) return;
  inbox_->Post([this](Member*, Time, Member::Out*) {
    ending_ = true;
    Discard(std::exchange(reshape_, nullptr));
  });
  {
    MutexLock lock(&mutex_);
    while (!state_ended_ && !stop_ && changed_.WaitUntil(&mutex_, deadline)) {
    }
    if (state_ended_ || stop_) return;
  }
  inbox_->Post([this](Member*, Time, Member::Out*) { snapshots_.Freeze(); });
}

void Participant::Leave(Time deadline) {
  inbox_->Post([this](Member* m, Time now, Member::Out* out) {
    m->OnFinished(now, out);
    inbox_->Post([this](Member*, Time, Member::Out*) {
      MutexLock lock(&mutex_);
      left_ = true;
      changed_.NotifyAll();
    });
  });
  MutexLock lock(&mutex_);
  while (!left_ || (drained_ && !dismissed_)) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return;
  }
}

}  // namespace rewire::elastic
