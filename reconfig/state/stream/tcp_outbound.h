// One connection to one receiver on one stream. The connection retries until the receiver knows the
// stream and both sides are authenticated, then sends fragments in order and takes the answers.
// Owned by the transport's thread.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/state/stream/transport.h"

namespace rewire::state {

class TcpOutbound {
 public:
  struct Waiting {
    OutFragment fragment;
    std::string header;
    std::function<void(absl::Status)> done;
  };

  // self: the hello's sender; its address is not used.
  TcpOutbound(const StreamKey& key, const WorldMember& self, WorldMember to, Duration connect,
              Duration stall, Time now);
  ~TcpOutbound();

  void Add(OutFragment fragment, std::function<void(absl::Status)> done, Time now);
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool WantsWrite() const;
  void OnReady(Time now, int events);
  void OnTick(Time now);
  // The latest time for the next OnTick(); Time::max() when OnTick() has nothing to do.
  [[nodiscard]] Time NextTick() const;
  // Completes all waiting fragments with `status` and sends nothing more.
  void Fail(const absl::Status& status);
  // Formats an error with the member and its address.
  [[nodiscard]] std::string StreamText(const std::string& why) const;

 private:
  enum class State { kIdle, kConnecting, kHello, kProof, kOpen, kFailed };
  void Connect(Time now);
  // Tries again later, until the connection deadline.
  void Retry(Time now, const std::string& why);
  void Write(Time now);
  void Read(Time now);
  // Takes one whole answer from in_; false: in_ has no whole answer yet.
  bool TakeAnswer(Time now);
  void OnChallenge(Time now, std::string_view challenge);
  void OnReply(Reply reply);

  const StreamKey key_;
  const WorldMember self_;
  const WorldMember to_;
  const Duration stall_;
  const Time connect_by_;
  UniqueFd fd_;
  State state_ = State::kIdle;
  absl::Status failure_;
  Time retry_at_;
  Time attempt_until_;                            // for one attempt to connect
  std::string refusal_;                           // why the last attempt ended
  Time deadline_;                                 // for progress of the handshake or of fragments
  std::optional<ConnectingHandshake> handshake_;  // of this connection
  std::string handshake_left_;                    // not written yet
  std::string in_;
  std::deque<Waiting> waiting_;  // sent and not answered, then not sent
  size_t sent_ = 0;              // of waiting_
  size_t sent_bytes_ = 0;        // of waiting_[sent_], header included
};

}  // namespace rewire::state
