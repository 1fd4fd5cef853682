// The life of one rail of a connection: joined with the peer's NIC, up, and after a failure fenced,
// drained, settled with the peer, down, and joined again.
//
// The sending side begins each join. It makes queue pairs in the background and sends their offer;
// the receiving side answers with its own queue pairs; probes then check that data get across. A
// rail that fails while it is up is fenced: each side moves its queue pairs to the error state,
// drains the earlier completions, and reports to the peer what arrived. The rail is settled when
// both reports are there, and down until its next attempt, at growing intervals.
//
// Connection owns its rails, polls their queue pairs and chooses among them. Thread-compatible:
// owned by the thread that polls the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "net_plugin/socket/wire_format.h"
#include "net_plugin/verbs/clear_to_send.h"
#include "net_plugin/verbs/connection_options.h"
#include "net_plugin/verbs/nic.h"
#include "net_plugin/verbs/rail.h"
#include "reconfig/base/clock.h"

namespace rewire::net {

class RailLifecycle {
 public:
  enum class State {
    kDown,     // no queue pairs; may be joined
    kMaking,   // queue pairs are created or joined in the background
    kOffered,  // the sender has sent an offer; the receiver has answered one
    kProbing,  // the sender's queue pairs are joined; probes check that data get across
    kUp,
    kDraining,  // this side's queue pairs are in error
    kFenced,    // dropped on this side; the peer may still drain
  };

  // The connection, as its rails call it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Sends a frame about the rail's present attempt.
    virtual void SendFrame(const RailLifecycle& rail, FrameKind kind, std::string payload) = 0;
    // Returns the report for the peer about a rail that delivers nothing any more.
    virtual std::string Report() = 0;
    // Both sides have fenced the rail; `report` is the peer's.
    virtual absl::Status Settle(const RailLifecycle& rail, std::string_view report) = 0;
    // The error for a frame that is not valid now.
    [[nodiscard]] virtual absl::Status MalformedFrame(const FrameHeader& header,
                                                      const std::string& why) const = 0;
    virtual void Fail(const absl::Status& status) = 0;
  };

  // The values that all rails of a connection share. The connection owns the object.
  struct Context {
    // Returns the next of the random numbers that `seed` begins.
    uint64_t Random();

    const bool sending;  // this side sends the messages and begins the joins
    const ConnectionOptions& options;
    const std::string& peer;  // address, for logs
    ClearRing* const ring;
    Owner* const owner;
    const uint64_t seed;
    uint64_t randoms = 0;
    bool answered = false;                  // the peer's program polls its side of the connection
    std::function<void()> waker = nullptr;  // called when background work ends
  };

  // fallback: not between NICs that NCCL chose. `context` must outlive the rail.
  RailLifecycle(size_t number, bool fallback, std::shared_ptr<Nic> nic, Context* context)
      : number_(number),
        fallback_(fallback),
        nic_(std::move(nic)),
        context_(context),
        rail_(nic_) {}

  // The index among the connection's rails, the same on both sides.
  [[nodiscard]] size_t number() const { return number_; }
  [[nodiscard]] Nic& nic() const { return *nic_; }
  [[nodiscard]] Rail& rail() { return rail_; }
  [[nodiscard]] const Rail& rail() const { return rail_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool up() const { return state_ == State::kUp; }
  // Counts the attempts to join.
  [[nodiscard]] uint32_t attempt() const { return attempt_; }
  // The reason why the rail is not up; empty before the first attempt has ended.
  [[nodiscard]] const std::string& why() const { return why_; }
  // True if nothing is under way: the rail is up, or down.
  [[nodiscard]] bool IsAtRest() const { return up() || state_ == State::kDown; }
  [[nodiscard]] bool IsJoining() const {
    return state_ == State::kMaking || state_ == State::kOffered || state_ == State::kProbing;
  }
  // True if the rail may be joined now.
  [[nodiscard]] bool IsDue(Time now) const { return state_ == State::kDown && now >= due_; }

  // The keys for the rings of both sides, and the peer's address; valid while the rail is up.
  [[nodiscard]] uint32_t ring_lkey() const { return ring_->lkey(); }
  [[nodiscard]] uint64_t peer_ring() const { return peer_ring_; }
  [[nodiscard]] uint32_t peer_ring_rkey() const { return peer_ring_rkey_; }

  // The sender: begins the next attempt. Call only while the rail is down.
  void BeginJoin();
  // Takes a frame about this rail.
  absl::Status TakeFrame(const FrameHeader& header, std::string_view payload);
  // The peer has sent its first frame; from now on each attempt has its own deadline.
  void NoteAnswer();
  // A write has completed in state kProbing.
  void EndProbe();
  // The rail has failed on this side. No effect if there is nothing to end.
  void Break(const std::string& why);
  // Like Break(), but the completion queue has failed: it reports no more completions.
  void BreakQueue(const std::string& why);
  // Call after each poll of the queue pairs. idle: the poll found no completion.
  void EndPoll(bool idle) {
    if (state_ == State::kDraining) EndDrainIfDue(idle);
  }
  // Takes the results of background work, and ends an attempt that timed out.
  void KeepTime();

 private:
  struct Making;

  void SendFrame(FrameKind kind, std::string payload = {}) {
    context_->owner->SendFrame(*this, kind, std::move(payload));
  }
  [[nodiscard]] Time Now() const { return context_->options.now(); }
  // The receiver: answers an offer.
  absl::Status Answer(const FrameHeader& header, std::string_view payload);
  absl::Status TakeAnswer(const FrameHeader& header, std::string_view payload);
  // Creates queue pairs or takes existing ones; joins them with the peer's if there is an offer.
  void Make(const std::optional<Offer>& peer);
  void EndMaking();
  // The sender: data have crossed on every queue pair.
  void GoUp();
  // Destroys the queue pairs in the background; the rail delivers nothing any more.
  void Drop();
  void EndDrainIfDue(bool idle);
  void EndDrain();
  absl::Status SettleIfBoth();
  void SetDown(const std::string& why);

  const size_t number_;
  const bool fallback_;
  const std::shared_ptr<Nic> nic_;
  Context* const context_;
  Rail rail_;
  std::shared_ptr<Making> making_;
  bool joined_ = false;                   // the queue pairs are also joined with the peer's
  uint32_t probes_ = 0;                   // outstanding probes
  std::optional<std::string> abandoned_;  // reason why the attempt was abandoned meanwhile
  // The receiver: an offer that arrived while an earlier offer was still being answered.
  std::optional<std::pair<FrameHeader, std::string>> next_offer_;
  State state_ = State::kDown;
  uint32_t attempt_ = 0;
  Time due_;             // deadline of this state's next step
  Time since_;           // start of state kUp
  bool failed_ = false;  // failed since it was up; used by the sender
  Duration pause_{};     // before the next attempt
  std::unique_ptr<rdma::MemoryRegion> ring_;
  uint64_t peer_ring_ = 0;
  uint32_t peer_ring_rkey_ = 0;
  std::optional<std::string> report_;  // the peer's report of this attempt
  std::string why_;
};

}  // namespace rewire::net
