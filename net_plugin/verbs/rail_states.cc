// The join, fence and rejoin of a connection's rails; see connection.h for callers and threads.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/verbs/connection.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {
namespace {

constexpr const char* kFencedByPeer = "the peer has fenced the rail or abandoned its join";

}  // namespace

void Connection::SayOf(size_t rail, FrameKind kind, std::string payload) {
  FrameHeader header = Header(kind);
  header.offset = rail;
  header.sequence = tracks_[rail].attempt;
  header.total = total_;
  control_.Say(header, std::move(payload));
  settled_ = false;
}

void Connection::Make(Track* track, const std::optional<Offer>& peer) {
  Track& t = *track;
  t.state = State::kMaking;
  t.joined = peer.has_value();
  t.abandoned.reset();
  settled_ = false;
  const bool fresh = !t.rail.made();
  t.making = std::make_shared<Making>(std::move(t.rail));
  options_.run([making = t.making, peer, fresh, options = options_.rail, random = Random(),
                waker = waker_] {
    absl::Status status;
    if (fresh) {
      absl::StatusOr<Offer> ours = making->rail.Prepare(options, peer ? &*peer : nullptr, random);
      status = ours.status();
      if (ours.ok()) making->ours = *std::move(ours);
    }
    if (status.ok() && peer) {
      status = making->rail.Join(options, *peer, fresh ? &making->ours : nullptr);
    }
    if (!status.ok()) making->why = std::string(status.message());
    making->done.store(true, std::memory_order_release);
    if (waker) waker();
  });
}

void Connection::EndMaking(size_t rail) {
  Track& t = tracks_[rail];
  const std::shared_ptr<Making> making = std::exchange(t.making, nullptr);
  t.rail = std::move(making->rail);
  std::string why = making->why;
  if (why.empty() && t.abandoned) why = *t.abandoned;
  if (why.empty() && t.ring == nullptr) {
    // No relaxed ordering: the sender polls the ring.
    auto registered =
        t.nic->device().Register(&ring, sizeof ring, {.local_write = true, .remote_write = true});
    if (registered.ok()) {
      t.ring = *std::move(registered);
    } else {
      why = std::string(registered.status().message());
    }
  }
  if (!why.empty()) {
    SayOf(rail, FrameKind::kRefused, why);
    SetDown(&t, why);
  } else if (sending_ && t.joined) {
    t.state = State::kProbing;
    t.due = options_.now() + options_.join;
    const absl::StatusOr<uint32_t> probes = t.rail.Probe();
    t.probes = probes.value_or(0);
    if (!probes.ok()) Break(rail, std::string(probes.status().message()));
  } else {
    t.state = State::kOffered;
    t.due = options_.now() + (answered_ ? options_.join : options_.answer);
    making->ours.ring = reinterpret_cast<uintptr_t>(&ring);
    making->ours.ring_rkey = t.ring->rkey();
    SayOf(rail, sending_ ? FrameKind::kJoin : FrameKind::kJoined, Encode(making->ours));
  }
  if (t.state != State::kDown || !t.next_offer) return;
  const auto [header, payload] = *std::exchange(t.next_offer, std::nullopt);
  if (absl::Status status = Answer(header, payload); !status.ok()) Fail(status);
}

void Connection::GoUp(size_t rail) {
  Track& t = tracks_[rail];
  t.state = State::kUp;
  t.since = options_.now();
  if (rail >= total_) {
    REWIRE_INFO("net plugin: rail %zu on %s to %s is up as a fallback", rail, t.nic->name().c_str(),
                peer().c_str());
    ++options_.counters->fallback;
  } else if (std::exchange(t.failed, false)) {
    REWIRE_INFO("net plugin: rail %zu on %s to %s is up again", rail, t.nic->name().c_str(),
                peer().c_str());
    ++options_.counters->back;
  }
  SayOf(rail, FrameKind::kReady);
}

void Connection::BeginJoin(size_t rail) {
  Track& t = tracks_[rail];
  ++t.attempt;
  Make(&t, std::nullopt);
}

void Connection::HearAnswer() {
  if (std::exchange(answered_, true)) return;
  for (Track& t : tracks_) {
    if (t.state == State::kOffered) t.due = options_.now() + options_.join;
  }
}

absl::Status Connection::HearOfRail(const FrameHeader& header, std::string_view payload) {
  HearAnswer();
  if (header.offset >= kMostRails) return MalformedFrame(header);
  if (!sending_) {
    if (header.total == 0 || header.total > kMostRails || (total_ != 0 && header.total != total_)) {
      return MalformedFrame(header);
    }
    total_ = header.total;
    while (tracks_.size() <= header.offset) tracks_.emplace_back(nics_.all[NicOf(tracks_.size())]);
  }
  if (header.offset >= tracks_.size()) return MalformedFrame(header);
  const size_t rail = header.offset;
  Track& t = tracks_[rail];
  if (!sending_ && header.kind == FrameKind::kJoin) return Answer(header, payload);
  if (!sending_ && header.kind == FrameKind::kRefused && header.sequence > t.attempt) {
    t.attempt = static_cast<uint32_t>(header.sequence);
    t.next_offer.reset();  // the refused offer, if there was one
  }
  // The frame belongs to an abandoned attempt.
  if (header.sequence != t.attempt) return absl::OkStatus();
  switch (header.kind) {
    case FrameKind::kJoined:
      if (!sending_) return MalformedFrame(header);
      return TakeAnswer(&t, header, payload);
    case FrameKind::kReady:
      if (sending_) return MalformedFrame(header);
      if (t.state != State::kOffered) return absl::OkStatus();
      t.state = State::kUp;
      t.since = options_.now();
      return absl::OkStatus();
    case FrameKind::kRefused:
      // The peer does not use the rail, whatever this side's state is.
      if (t.state == State::kUp) return MalformedFrame(header);
      if (t.state == State::kMaking) {
        t.abandoned = std::string(payload);
        return absl::OkStatus();
      }
      if (t.state != State::kDown) SetDown(&t, std::string(payload));
      t.why = std::string(payload);
      return absl::OkStatus();
    case FrameKind::kFenced:
      if (t.state == State::kDown) return absl::OkStatus();
      if (t.state == State::kMaking) {
        t.abandoned = kFencedByPeer;
        return absl::OkStatus();
      }
      t.report = std::string(payload);
      Break(rail, kFencedByPeer);
      return SettleIfBoth(rail);
    default:
      return MalformedFrame(header);
  }
}

absl::Status Connection::Answer(const FrameHeader& header, std::string_view payload) {
  Track& t = tracks_[header.offset];
  if (header.sequence <= t.attempt) return MalformedFrame(header);
  if (t.state == State::kMaking) {
    // The sender has abandoned the attempt that is being made here.
    t.abandoned = kFencedByPeer;
    t.next_offer = {header, std::string(payload)};
    return absl::OkStatus();
  }
  const std::optional<Offer> offer = DecodeOffer(payload);
  if (!offer || t.state != State::kDown) return MalformedFrame(header);
  t.attempt = static_cast<uint32_t>(header.sequence);
  t.report.reset();
  t.peer_ring = offer->ring;
  t.peer_ring_rkey = offer->ring_rkey;
  Make(&t, offer);
  return absl::OkStatus();
}

absl::Status Connection::TakeAnswer(Track* track, const FrameHeader& header,
                                    std::string_view payload) {
  const std::optional<Offer> offer = DecodeOffer(payload);
  if (!offer) return MalformedFrame(header);
  track->peer_ring = offer->ring;
  track->peer_ring_rkey = offer->ring_rkey;
  if (track->state == State::kOffered) Make(track, offer);
  return absl::OkStatus();
}

void Connection::Break(size_t rail, const std::string& why) {
  Track& t = tracks_[rail];
  settled_ = false;
  if (sending_ && (t.state == State::kOffered || t.state == State::kProbing)) {
    // No data has been sent that could arrive, so no fence is needed.
    SayOf(rail, FrameKind::kRefused, why);
    return SetDown(&t, why);
  }
  if (t.state != State::kUp && t.state != State::kOffered) return;
  if (sending_ && rail < total_) {
    t.failed = true;
    ++options_.counters->failed;
  }
  REWIRE_WARN(
      "net plugin: rail %zu on %s to %s failed: %s (its requests are sent again on another "
      "rail or over TCP)",
      rail, t.nic->name().c_str(), peer().c_str(), why.c_str());
  t.why = why;
  t.state = State::kDraining;
  t.due = options_.now() + options_.drain;
  t.rail.Fence();
  if (!t.rail.made() || t.rail.Drained()) EndDrain(rail);
}

void Connection::Drop(Track* track) {
  if (!track->rail.made()) return;
  options_.run([old = std::make_shared<Rail>(track->rail.Take())] { old->Drop(); });
}

void Connection::EndDrain(size_t rail) {
  Track& t = tracks_[rail];
  Drop(&t);
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
  SetDown(&t, t.why);
  return end_ == nullptr ? absl::OkStatus() : end_->Settle(rail, report);
}

void Connection::SetDown(Track* track, const std::string& why) {
  track->why = why;
  Drop(track);
  track->report.reset();
  track->state = State::kDown;
  const Time now = options_.now();
  const bool stayed = track->since != Time{} && now - track->since > options_.most_retry;
  track->since = {};
  track->pause = track->pause == Duration{} || stayed
                     ? options_.first_retry
                     : std::min(2 * track->pause, options_.most_retry);
  // Random between 0.5 and 1.5 pauses, so that rails that failed together retry separately.
  const auto spread = static_cast<uint64_t>(ToNanoseconds(track->pause));
  track->due = now + track->pause / 2 + nanoseconds(Random() % spread);
}

bool Connection::NeedsOthers() const {
  return std::all_of(tracks_.begin(), tracks_.begin() + static_cast<ptrdiff_t>(total_),
                     [](const Track& t) { return t.state != State::kUp && !t.why.empty(); });
}

void Connection::BeginDue(size_t first, size_t end) {
  const Time now = options_.now();
  std::optional<size_t> due;
  for (size_t r = first; r < end; ++r) {
    const Track& t = tracks_[r];
    switch (t.state) {
      case State::kMaking:
      case State::kOffered:
      case State::kProbing:
        return;
      case State::kDown:
        if (!due && now >= t.due) due = r;
        break;
      default:
        break;
    }
  }
  if (due) BeginJoin(*due);
}

void Connection::KeepTime() {
  const Time now = options_.now();
  for (size_t r = 0; r < tracks_.size(); ++r) {
    Track& t = tracks_[r];
    if (t.making != nullptr && t.making->done.load(std::memory_order_acquire)) EndMaking(r);
    const bool asks = t.state == State::kOffered || t.state == State::kProbing;
    if (sending_ && asks && now >= t.due)
      Break(r, absl::StrCat("no answer in time (", answered_ ? "join" : "first answer", ": ",
                            ToMilliseconds(answered_ ? options_.join : options_.answer), " ms)"));
  }
  if (!sending_ || link_->peer_finished) return;
  BeginDue(0, total_);
  // One fallback rail is enough.
  if (NeedsOthers() && Up() == 0) BeginDue(total_, tracks_.size());
}

}  // namespace rewire::net
