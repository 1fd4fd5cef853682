// One connection to one receiver on one stream: connects (again and again until the receiver knows
// the stream), then sends fragments in order and takes the answers. Of the transport's thread
// alone.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/stream/transport.h"

namespace rewire {

class TcpOutbound {
 public:
  struct Waiting {
    OutFragment fragment;
    std::string header;
    std::function<void(absl::Status)> done;
  };

  TcpOutbound(WorldMember to, Greeting greeting, Duration connect, Duration stall, Time now);
  ~TcpOutbound();

  void Add(OutFragment fragment, std::function<void(absl::Status)> done, Time now);
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool WantsWrite() const;
  void OnReady(Time now, short events);
  void OnTick(Time now);
  // When OnTick has something to do, at the latest.
  [[nodiscard]] Time NextTick() const;
  // All that waits is done with this; nothing is sent any more.
  void Fail(const absl::Status& status);

 private:
  enum class State { kIdle, kConnecting, kGreeting, kOpen, kFailed };
  void Connect(Time now);
  // Tries again later, until the connection deadline.
  void Retry(Time now, const std::string& why);
  void Write(Time now);
  void Read(Time now);
  void OnReply(Time now, Reply reply);

  const WorldMember to_;
  const Greeting greeting_;
  const Duration stall_;
  const Time connect_by_;
  UniqueFd fd_;
  State state_ = State::kIdle;
  absl::Status failure_;
  Time retry_at_;
  Time deadline_;  // for progress, while something is under way
  std::string greeting_left_;
  std::string in_;
  std::deque<Waiting> waiting_;  // sent and not answered, then not sent
  size_t sent_ = 0;              // of waiting_
  size_t sent_bytes_ = 0;        // of waiting_[sent_], header included
};

}  // namespace rewire
