// Connections, losses and silence; see peers.h. Owned by the leader's thread.
#include "reconfig/elastic/leader/peers.h"

#include <algorithm>
#include <utility>

namespace rewire::elastic {

// ---- silence ------------------------------------------------------------------------------------

Silence::Silence(Duration heartbeat, Duration longest)
    : longest_(longest), vouches_(std::min(2 * heartbeat, longest / 2)) {}

void Silence::Start(Time now) { counted_ = spoke_ = now; }

void Silence::Count(Time now) {
  const Time until = std::min(now, spoke_ + vouches_);
  if (until > counted_) speaking_ += until - counted_;
  counted_ = now;
}

Duration Silence::Heard(Time now, MemberId member, bool of_world) {
  Count(now);
  voices_[member] = {now, speaking_};
  if (!of_world) return {};
  const Duration gap = now - spoke_;
  spoke_ = now;
  if (gap <= longest_ / 2) return {};
  // This member is the first to speak again: the others get their full time.
  for (auto& [id, voice] : voices_) voice.at = speaking_;
  return gap;
}

void Silence::Starved(Time now, MemberId member, Duration waited) {
  Count(now);
  const auto voice = voices_.find(member);
  if (voice == voices_.end()) return;
  voice->second.at = std::min(voice->second.at + waited, speaking_);
}

Silence::Voice Silence::VoiceOf(MemberId member) const {
  const auto voice = voices_.find(member);
  return voice == voices_.end() ? Voice{} : voice->second;
}

Duration Silence::Of(MemberId member) const { return speaking_ - VoiceOf(member).at; }

std::optional<Time> Silence::Due(MemberId member) const {
  if (TooLong(member)) return std::nullopt;
  return counted_ + (longest_ - Of(member));
}

std::optional<Duration> Silence::Since(Time now, MemberId member) const {
  const Time heard = VoiceOf(member).heard;
  return heard == Time{} ? std::nullopt : std::optional<Duration>(now - heard);
}

// ---- peers --------------------------------------------------------------------------------------

Peer* Peers::Find(MemberId member) {
  const auto it = peers_.find(member);
  return it == peers_.end() ? nullptr : &it->second;
}

const Peer* Peers::Find(MemberId member) const {
  const auto it = peers_.find(member);
  return it == peers_.end() ? nullptr : &it->second;
}

void Peers::Forget(MemberId member) {
  silence_.Forget(member);
  peers_.erase(member);
}

bool Peers::Finished(MemberId member) const {
  const Peer* const peer = Find(member);
  return peer != nullptr && peer->finished;
}

bool Peers::Told(MemberId member) const {
  const Peer* const peer = Find(member);
  return peer != nullptr && peer->connected && !peer->welcome_due;
}

std::vector<MemberId> Peers::Alive(std::vector<MemberId> members) const {
  std::erase_if(members, [&](MemberId m) {
    const Peer* const peer = Find(m);
    return lost_.contains(m) || peer == nullptr || peer->lost || peer->finished;
  });
  return members;
}

std::vector<MemberId> Peers::Missing(std::vector<MemberId> members) const {
  std::erase_if(members, [&](MemberId m) {
    const Peer* const peer = Find(m);
    return lost_.contains(m) || (peer != nullptr && (peer->connected || peer->finished));
  });
  return members;
}

bool Peers::Cooperate(const std::vector<MemberId>& members) const {
  return std::all_of(members.begin(), members.end(), [&](MemberId m) {
    const Peer* const peer = Find(m);
    return peer == nullptr || peer->lost || peer->cooperates;
  });
}

bool Peers::Reclaimed(const std::vector<MemberId>& members) const {
  return std::all_of(members.begin(), members.end(), [&](MemberId m) {
    const Peer* const peer = Find(m);
    return peer != nullptr && peer->reclaimed;
  });
}

bool Peers::Lose(MemberId member, bool of_world) {
  Peer& peer = Know(member);
  peer.lost = true;
  if (of_world) lost_.insert(member);
  return std::exchange(peer.connected, false);
}

void Peers::KeepLost(const std::vector<MemberId>& world) {
  std::erase_if(
      lost_, [&](MemberId m) { return std::find(world.begin(), world.end(), m) == world.end(); });
}

Duration Peers::Heard(Time now, MemberId member, bool of_world) {
  Know(member).told_starved = false;
  if (of_world) told_all_silent_ = false;
  return silence_.Heard(now, member, of_world);
}

bool Peers::Starved(Time now, MemberId member, Duration waited) {
  silence_.Starved(now, member, waited);
  Peer* const peer = Find(member);
  return peer != nullptr && !std::exchange(peer->told_starved, true);
}

std::vector<MemberId> Peers::Quiet() const {
  std::vector<MemberId> quiet;
  for (const auto& [id, peer] : peers_) {
    if (peer.Watched() && silence_.Of(id) >= silence_.longest() / 4) quiet.push_back(id);
  }
  return quiet;
}

std::vector<MemberId> Peers::TooSilent(Time now, bool raw) const {
  std::vector<MemberId> silent;
  for (const auto& [id, peer] : peers_) {
    if (!peer.Watched()) continue;
    const bool too_long =
        raw ? silence_.Since(now, id).value_or(Duration::max()) >= silence_.longest()
            : silence_.TooLong(id);
    if (too_long) silent.push_back(id);
  }
  return silent;
}

std::vector<MemberId> Peers::AwaitedTooLong() const {
  std::vector<MemberId> awaited;
  for (const auto& [id, peer] : peers_) {
    if (peer.awaited && silence_.TooLong(id)) awaited.push_back(id);
  }
  return awaited;
}

bool Peers::NewlyFinishedLong(MemberId member) {
  Peer& peer = Know(member);
  return peer.finished && peer.cooperates && silence_.TooLong(member) &&
         !std::exchange(peer.told_finished, true);
}

bool Peers::NewlyAllSilent(Time now) {
  return AllSilent(now) && !std::exchange(told_all_silent_, true);
}

std::optional<Time> Peers::NextDue() const {
  std::optional<Time> next;
  for (const auto& [id, peer] : peers_) {
    if (!peer.Watched() && !peer.awaited) continue;
    const std::optional<Time> due = silence_.Due(id);
    if (due) next = next ? std::min(*next, *due) : *due;
  }
  return next;
}

}  // namespace rewire::elastic
