#include "net_plugin/verbs/rail_lifecycle.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

constexpr const char* kFencedByPeer = "the peer has fenced the rail or abandoned its join";

}  // namespace

// The data of the background work that makes a rail. Owned by the background thread until `done`,
// and afterwards by the connection's thread.
struct RailLifecycle::Making {
  explicit Making(Rail taken) : rail(std::move(taken)) {}
  Rail rail;
  Offer ours;
  std::string why;  // reason of the failure; empty: success
  std::atomic<bool> done{false};
};

uint64_t RailLifecycle::Context::Random() { return MixWord(seed, ++randoms); }

void RailLifecycle::Make(const std::optional<Offer>& peer) {
  state_ = State::kMaking;
  joined_ = peer.has_value();
  abandoned_.reset();
  const bool fresh = !rail_.made();
  making_ = std::make_shared<Making>(std::move(rail_));
  context_->options.run([making = making_, peer, fresh, options = context_->options.rail,
                         random = context_->Random(), waker = context_->waker] {
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

void RailLifecycle::EndMaking() {
  const std::shared_ptr<Making> making = std::exchange(making_, nullptr);
  rail_ = std::move(making->rail);
  std::string why = making->why;
  if (why.empty() && abandoned_) why = *abandoned_;
  if (why.empty() && ring_ == nullptr) {
    // Register the ring without relaxed ordering, because the sender polls the ring for the peer's
    // writes.
    auto registered = nic_->device().Register(context_->ring, sizeof *context_->ring,
                                              {.local_write = true, .remote_write = true});
    if (registered.ok()) {
      ring_ = *std::move(registered);
    } else {
      why = std::string(registered.status().message());
    }
  }
  if (!why.empty()) {
    SendFrame(FrameKind::kRefused, why);
    SetDown(why);
  } else if (context_->sending && joined_) {
    state_ = State::kProbing;
    due_ = Now() + context_->options.join;
    const absl::StatusOr<uint32_t> probes = rail_.Probe();
    probes_ = probes.value_or(0);
    if (!probes.ok()) Break(std::string(probes.status().message()));
  } else {
    state_ = State::kOffered;
    due_ = Now() + (context_->answered ? context_->options.join : context_->options.answer);
    making->ours.ring = reinterpret_cast<uintptr_t>(context_->ring);
    making->ours.ring_rkey = ring_->rkey();
    SendFrame(context_->sending ? FrameKind::kJoin : FrameKind::kJoined, Encode(making->ours));
  }
  if (state_ != State::kDown || !next_offer_) return;
  const auto [header, payload] = *std::exchange(next_offer_, std::nullopt);
  if (absl::Status status = Answer(header, payload); !status.ok()) context_->owner->Fail(status);
}

void RailLifecycle::EndProbe() {
  if (--probes_ == 0) GoUp();
}

void RailLifecycle::GoUp() {
  state_ = State::kUp;
  since_ = Now();
  if (fallback_) {
    REWIRE_INFO("net plugin: rail %zu on %s to %s is up as a fallback", number_,
                nic_->name().c_str(), context_->peer.c_str());
    ++context_->options.counters->fallback;
  } else if (std::exchange(failed_, false)) {
    REWIRE_INFO("net plugin: rail %zu on %s to %s is up again", number_, nic_->name().c_str(),
                context_->peer.c_str());
    ++context_->options.counters->back;
  }
  SendFrame(FrameKind::kReady);
}

void RailLifecycle::BeginJoin() {
  ++attempt_;
  Make(std::nullopt);
}

void RailLifecycle::NoteAnswer() {
  if (state_ == State::kOffered) due_ = Now() + context_->options.join;
}

absl::Status RailLifecycle::TakeFrame(const FrameHeader& header, std::string_view payload) {
  const bool sending = context_->sending;
  const auto malformed = [&](const char* why) {
    return context_->owner->MalformedFrame(header, why);
  };
  if (!sending && header.kind == FrameKind::kJoin) return Answer(header, payload);
  if (!sending && header.kind == FrameKind::kRefused && header.sequence > attempt_) {
    attempt_ = static_cast<uint32_t>(header.sequence);
    next_offer_.reset();  // the refused offer, if there was one
  }
  // The frame belongs to an abandoned attempt.
  if (header.sequence != attempt_) return absl::OkStatus();
  switch (header.kind) {
    case FrameKind::kJoined:
      if (!sending) return malformed("only the receiver answers an offer");
      return TakeAnswer(header, payload);
    case FrameKind::kReady:
      if (sending) return malformed("only the sender says that a rail is ready");
      if (state_ != State::kOffered) return absl::OkStatus();
      state_ = State::kUp;
      since_ = Now();
      return absl::OkStatus();
    case FrameKind::kRefused:
      // The peer does not use the rail, whatever this side's state is.
      if (up()) return malformed("the refused rail is up");
      if (state_ == State::kMaking) {
        abandoned_ = std::string(payload);
        return absl::OkStatus();
      }
      if (state_ != State::kDown) SetDown(std::string(payload));
      why_ = std::string(payload);
      return absl::OkStatus();
    case FrameKind::kFenced:
      if (state_ == State::kDown) return absl::OkStatus();
      if (state_ == State::kMaking) {
        abandoned_ = kFencedByPeer;
        return absl::OkStatus();
      }
      report_ = std::string(payload);
      Break(kFencedByPeer);
      return SettleIfBoth();
    default:
      return malformed("only the sender offers to join a rail");
  }
}

absl::Status RailLifecycle::Answer(const FrameHeader& header, std::string_view payload) {
  if (header.sequence <= attempt_) {
    return context_->owner->MalformedFrame(
        header, absl::StrCat("the offer's attempt must exceed ", attempt_));
  }
  if (state_ == State::kMaking) {
    // The sender has abandoned the attempt whose queue pairs are being made on this side.
    abandoned_ = kFencedByPeer;
    next_offer_ = {header, std::string(payload)};
    return absl::OkStatus();
  }
  const absl::StatusOr<Offer> offer = DecodeOffer(payload);
  if (!offer.ok()) {
    return context_->owner->MalformedFrame(header, std::string(offer.status().message()));
  }
  if (state_ != State::kDown) {
    return context_->owner->MalformedFrame(header, "the offered rail is not down");
  }
  attempt_ = static_cast<uint32_t>(header.sequence);
  report_.reset();
  peer_ring_ = offer->ring;
  peer_ring_rkey_ = offer->ring_rkey;
  Make(*offer);
  return absl::OkStatus();
}

absl::Status RailLifecycle::TakeAnswer(const FrameHeader& header, std::string_view payload) {
  const absl::StatusOr<Offer> offer = DecodeOffer(payload);
  if (!offer.ok()) {
    return context_->owner->MalformedFrame(header, std::string(offer.status().message()));
  }
  peer_ring_ = offer->ring;
  peer_ring_rkey_ = offer->ring_rkey;
  if (state_ == State::kOffered) Make(*offer);
  return absl::OkStatus();
}

void RailLifecycle::Break(const std::string& why) {
  if (context_->sending && (state_ == State::kOffered || state_ == State::kProbing)) {
    // No messages have been sent on the rail, so none can arrive late and no fence is needed.
    SendFrame(FrameKind::kRefused, why);
    return SetDown(why);
  }
  if (!up() && state_ != State::kOffered) return;
  if (context_->sending && !fallback_) {
    failed_ = true;
    ++context_->options.counters->failed;
  }
  REWIRE_WARN(
      "net plugin: rail %zu on %s to %s failed: %s (its requests are sent again on another "
      "rail or over TCP)",
      number_, nic_->name().c_str(), context_->peer.c_str(), why.c_str());
  why_ = why;
  state_ = State::kDraining;
  due_ = Now() + context_->options.drain;
  rail_.Fence();
  if (!rail_.made() || rail_.Drained()) EndDrain();
}

void RailLifecycle::BreakQueue(const std::string& why) {
  Break(why);
  if (state_ == State::kDraining) EndDrain();
}

void RailLifecycle::EndDrainIfDue(bool idle) {
  // Do not wait for all completions after the deadline: a request that was posted just before the
  // fence may never complete.
  if (rail_.Drained() || (idle && Now() >= due_)) EndDrain();
}

void RailLifecycle::Drop() {
  if (!rail_.made()) return;
  context_->options.run([old = std::make_shared<Rail>(rail_.Take())] { old->Drop(); });
}

void RailLifecycle::EndDrain() {
  Drop();
  state_ = State::kFenced;
  SendFrame(FrameKind::kFenced, context_->owner->Report());
  if (absl::Status status = SettleIfBoth(); !status.ok()) context_->owner->Fail(status);
}

absl::Status RailLifecycle::SettleIfBoth() {
  if (state_ != State::kFenced || !report_) return absl::OkStatus();
  const std::string report = *std::exchange(report_, std::nullopt);
  SetDown(why_);
  return context_->owner->Settle(*this, report);
}

void RailLifecycle::SetDown(const std::string& why) {
  why_ = why;
  Drop();
  report_.reset();
  state_ = State::kDown;
  const ConnectionOptions& options = context_->options;
  const Time now = Now();
  const bool stayed = since_ != Time{} && now - since_ > options.most_retry;
  since_ = {};
  pause_ = pause_ == Duration{} || stayed ? options.first_retry
                                          : std::min(2 * pause_, options.most_retry);
  // Random between 0.5 and 1.5 pauses, so that rails that failed together retry separately.
  const auto spread = static_cast<uint64_t>(ToNanoseconds(pause_));
  due_ = now + pause_ / 2 + nanoseconds(context_->Random() % spread);
}

void RailLifecycle::KeepTime() {
  const Time now = Now();
  if (making_ != nullptr && making_->done.load(std::memory_order_acquire)) EndMaking();
  const bool asks = state_ == State::kOffered || state_ == State::kProbing;
  if (!context_->sending || !asks || now < due_) return;
  const ConnectionOptions& options = context_->options;
  Break(absl::StrCat("no answer in time (", context_->answered ? "join" : "first answer", ": ",
                     ToMilliseconds(context_->answered ? options.join : options.answer), " ms)"));
}

}  // namespace rewire::net
