// How a connection's rails are joined, fenced and joined again; see connection.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net_plugin/verbs/connection.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {
namespace {

absl::Status Nonsense() { return absl::DataLossError("a frame about a rail makes no sense"); }

}  // namespace

void Connection::SayOf(size_t rail, FrameKind kind, std::string payload) {
  FrameHeader header = Header(kind);
  header.offset = rail;
  header.sequence = tracks_[rail].life;
  header.total = total_;
  control_.Say(header, std::move(payload));
  calm_ = false;
}

absl::StatusOr<Offer> Connection::MakeOffer(Track* track, const Offer* peer) {
  if (track->ring == nullptr) {
    REWIRE_ASSIGN_OR_RETURN(track->ring, track->rail.nic().memory().Get(&ring, sizeof ring));
  }
  REWIRE_ASSIGN_OR_RETURN(Offer offer, track->rail.Prepare(options_.rail, peer, Random()));
  offer.ring = reinterpret_cast<uintptr_t>(&ring);
  offer.ring_rkey = track->ring->rkey();
  return offer;
}

void Connection::BeginJoin(size_t rail) {
  Track& t = tracks_[rail];
  ++t.life;
  const absl::StatusOr<Offer> offer = MakeOffer(&t, nullptr);
  if (!offer.ok()) {
    // The receiving side counts it as heard of.
    SayOf(rail, FrameKind::kRefused, std::string(offer.status().message()));
    return Rest(&t, std::string(offer.status().message()));
  }
  t.state = State::kOffered;
  t.due = options_.now() + options_.join;
  SayOf(rail, FrameKind::kJoin, Encode(*offer));
}

absl::Status Connection::HearOfRail(const FrameHeader& header, std::string_view payload) {
  if (header.offset >= kMostRails) return Nonsense();
  if (!sending_) {
    if (header.total == 0 || header.total > kMostRails || header.offset >= header.total) {
      return Nonsense();
    }
    total_ = header.total;
    while (tracks_.size() <= header.offset) tracks_.emplace_back(nics_[NicOf(tracks_.size())]);
  }
  if (header.offset >= tracks_.size()) return Nonsense();
  const size_t rail = header.offset;
  Track& t = tracks_[rail];
  if (!sending_ && header.kind == FrameKind::kJoin) return Answer(header, payload);
  if (!sending_ && header.kind == FrameKind::kRefused && header.sequence > t.life) {
    t.life = static_cast<uint32_t>(header.sequence);
  }
  // Of an attempt that was given up.
  if (header.sequence != t.life) return absl::OkStatus();
  switch (header.kind) {
    case FrameKind::kJoined:
      if (!sending_) return Nonsense();
      return TakeAnswer(&t, header, payload);
    case FrameKind::kReady:
      if (sending_) return Nonsense();
      if (t.state != State::kOffered) return absl::OkStatus();
      t.state = State::kUp;
      t.since = options_.now();
      return absl::OkStatus();
    case FrameKind::kRefused:
      // Whatever this side has, the other does not use it.
      if (t.state == State::kUp) return Nonsense();
      if (t.state != State::kDown) Rest(&t, std::string(payload));
      t.why = std::string(payload);
      return absl::OkStatus();
    case FrameKind::kFenced:
      if (t.state == State::kDown) return absl::OkStatus();
      t.report = std::string(payload);
      Break(rail, "the other side has given it up");
      return SettleIfBoth(rail);
    default:
      return Nonsense();
  }
}

absl::Status Connection::Answer(const FrameHeader& header, std::string_view payload) {
  Track& t = tracks_[header.offset];
  const std::optional<Offer> offer = DecodeOffer(payload);
  if (!offer || t.state != State::kDown || header.sequence <= t.life) return Nonsense();
  t.life = static_cast<uint32_t>(header.sequence);
  t.report.reset();
  absl::StatusOr<Offer> ours = MakeOffer(&t, &*offer);
  absl::Status status = ours.status();
  if (status.ok()) status = t.rail.Join(options_.rail, *offer);
  if (!status.ok()) {
    SayOf(header.offset, FrameKind::kRefused, std::string(status.message()));
    Rest(&t, std::string(status.message()));
    return absl::OkStatus();
  }
  t.peer_ring = offer->ring;
  t.peer_ring_rkey = offer->ring_rkey;
  t.state = State::kOffered;
  SayOf(header.offset, FrameKind::kJoined, Encode(*ours));
  return absl::OkStatus();
}

absl::Status Connection::TakeAnswer(Track* track, const FrameHeader& header,
                                    std::string_view payload) {
  const std::optional<Offer> offer = DecodeOffer(payload);
  if (!offer) return Nonsense();
  if (track->state != State::kOffered) return absl::OkStatus();
  if (absl::Status status = track->rail.Join(options_.rail, *offer); !status.ok()) {
    SayOf(header.offset, FrameKind::kRefused, std::string(status.message()));
    Rest(track, std::string(status.message()));
    return absl::OkStatus();
  }
  track->state = State::kUp;
  track->since = options_.now();
  if (track->life > 1) {
    REWIRE_INFO("net plugin: %s is back", track->rail.nic().name().c_str());
  }
  SayOf(header.offset, FrameKind::kReady);
  return absl::OkStatus();
}

void Connection::Break(size_t rail, const std::string& why) {
  Track& t = tracks_[rail];
  calm_ = false;
  if (sending_ && t.state == State::kOffered) {
    // Nothing has been sent: no fence is needed.
    SayOf(rail, FrameKind::kRefused, why);
    return Rest(&t, why);
  }
  if (t.state != State::kUp && t.state != State::kOffered) return;
  REWIRE_WARN("net plugin: %s failed (%s): its requests go another way",
              t.rail.nic().name().c_str(), why.c_str());
  t.why = why;
  t.state = State::kDraining;
  t.due = options_.now() + options_.drain;
  t.rail.Fence();
  if (!t.rail.made() || t.rail.Drained()) EndDrain(rail);
}

void Connection::EndDrain(size_t rail) {
  Track& t = tracks_[rail];
  t.rail.Drop();
  t.state = State::kFenced;
  std::string report = sending_ ? Encode(Cleared{next, 0}) : Encode(Received{next, {}});
  if (end_ != nullptr) report = end_->Report();
  SayOf(rail, FrameKind::kFenced, std::move(report));
  if (absl::Status status = SettleIfBoth(rail); !status.ok()) Fail(status);
}

absl::Status Connection::SettleIfBoth(size_t rail) {
  Track& t = tracks_[rail];
  if (t.state != State::kFenced || !t.report) return absl::OkStatus();
  const std::string report = *std::exchange(t.report, std::nullopt);
  Rest(&t, t.why);
  return end_ == nullptr ? absl::OkStatus() : end_->Settle(rail, report);
}

void Connection::Rest(Track* track, const std::string& why) {
  track->why = why;
  track->rail.Drop();
  track->report.reset();
  track->state = State::kDown;
  const Time now = options_.now();
  const bool stayed = track->since != Time{} && now - track->since > options_.most_retry;
  track->since = {};
  track->pause = track->pause == Duration{} || stayed
                     ? options_.first_retry
                     : std::min(2 * track->pause, options_.most_retry);
  // Half to one and a half of it, so that those who failed together do not come back together.
  const auto spread = static_cast<uint64_t>(ToNanoseconds(track->pause));
  track->due = now + track->pause / 2 + nanoseconds(Random() % spread);
}

void Connection::KeepTime() {
  const Time now = options_.now();
  bool joining = false;
  for (size_t r = 0; r < tracks_.size(); ++r) {
    Track& t = tracks_[r];
    if (sending_ && t.state == State::kOffered && now >= t.due) Break(r, "no answer in time");
    joining = joining || t.state == State::kOffered;
  }
  if (!sending_ || joining || link_->rested) return;
  // One attempt at a time.
  for (size_t r = 0; r < tracks_.size(); ++r) {
    if (tracks_[r].state != State::kDown || now < tracks_[r].due) continue;
    return BeginJoin(r);
  }
}

}  // namespace rewire::net
