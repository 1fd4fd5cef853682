// The leader's answer to each message of a member; see leader.h. Owned by the leader's thread.
#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "reconfig/base/counters.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {

// One overload for each message, so that a message without one does not compile.
struct Leader::Incoming {
  void operator()(const Heartbeat& m) const {
    Heartbeat& counts = peer.counts;
    const uint64_t furthest = std::max(counts.updates, m.updates);
    counts = m;
    // Another build's member, or a hostile one, may send more rows than the agent knows.
    counts.counters.resize(std::min(counts.counters.size(), CounterTable().size()));
    counts.updates = furthest;
  }
  void operator()(const CommunicatorCreated& m) const {
    leader.registry_.Created(member, m);
    if (leader.Behind(peer)) leader.registry_.Settle(member, leader.WorldIds());
    leader.OnCommunicators(now, member, absl::StrCat("created communicator ", Name(m)), out);
  }
  void operator()(const CommunicatorDestroyed& m) const {
    leader.registry_.Destroyed(member, m.communicator);
    leader.OnCommunicators(now, member, absl::StrCat("destroyed communicator ", Name(m)), out);
  }
  void operator()(const Minted& m) const {
    if (leader.Current(m.epoch)) leader.OnMinted(now, m, out);
  }
  void operator()(const Prepared& m) const {
    if (leader.Current(m.epoch)) leader.OnPrepared(now, member, m, out);
  }
  void operator()(const Pledge& m) const {
    if (leader.Current(m.epoch)) leader.OnPledge(now, member, m, out);
  }
  void operator()(const AtBoundary& m) const {
    if (leader.Current(m.epoch)) leader.OnAtBoundary(now, member, m, out);
  }
  void operator()(const Verified& m) const {
    if (leader.Current(m.epoch)) leader.OnVerified(now, member, m, out);
  }
  void operator()(const Entered& m) const {
    peer.hello_epoch = std::max(peer.hello_epoch, m.epoch);
    if (leader.Current(m.epoch)) leader.OnEntered(now, member, m, out);
  }
  void operator()(const Position& m) const { leader.OnPosition(now, member, m, out); }
  void operator()(const ReclaimNotice& m) const { leader.OnReclaimNotice(now, member, m, out); }
  void operator()(const Finished&) const { leader.Finish(now, member, out); }
  void operator()(const Hello&) const {}  // OnConnect has it
  template <OfTheLeader M>
  void operator()(const M&) const {
    ++leader.dropped_;
  }

  template <typename M>
  static std::string Name(const M& m) {
    return ShortName(m.communicator);
  }

  Leader& leader;
  Peer& peer;
  const Time now;
  const MemberId member;
  Out* const out;
};

void Leader::OnMessage(Time now, MemberId member, const Message& message, Out* out) {
  now = Awake(now);
  const auto it = peers_.find(member);
  if (it == peers_.end() || !it->second.connected) {
    ++dropped_;
    return;
  }
  Heard(now, member);
  // A job that has ended still shows its members' counts.
  if (idle_phase_ == Phase::kStopped && !std::holds_alternative<Heartbeat>(message)) return;
  std::visit(Incoming{*this, it->second, now, member, out}, message);
}

void Leader::OnCommunicators(Time now, MemberId member, const std::string& what, Out* out) {
  if (!transition_ || !transition_->BeforeCommit()) return;
  if (transition_->phase == Phase::kReserve) return TryPrepare(now, out);
  Restart(now, absl::StrCat("member ", member, " ", what), out);
}

void Leader::OnReclaimNotice(Time now, MemberId member, const ReclaimNotice& m, Out* out) {
  peers_[member].reclaimed = true;
  if (NobodyStays()) return StopReclaimed(now, out);
  const ChangeRequest drain{
      RequestKind::kDrain, 0, {member}, milliseconds(m.within_ms), "reclaim notice"};
  const absl::StatusOr<uint64_t> id = Enqueue(now, drain, out);
  if (id.ok()) return;
  Tell(now, NoteKind::kWarning,
       absl::StrCat("the reclaim notice of member ", member,
                    " was refused: ", std::string(id.status().message())),
       out);
}

bool Leader::Current(Epoch epoch) {
  if (transition_ &&
      (epoch == transition_->epoch || options_.planted_bug == PlantedBug::kStaleEpochAccepted)) {
    return true;
  }
  ++dropped_;
  return false;
}

}  // namespace rewire::elastic
