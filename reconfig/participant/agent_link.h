// The framed Unix connection to the agent, made again with growing pauses when it breaks. Of the
// member's thread alone; never blocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"
#include "reconfig/transition/messages.h"

namespace rewire {

class AgentLink {
 public:
  explicit AgentLink(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] bool connected() const { return socket_.valid(); }
  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] bool WantsWrite() const { return connected() && socket_.WantsWrite(); }
  // Not empty: another user listens on the socket, and the text says who.
  [[nodiscard]] const std::string& foreign() const { return foreign_; }
  // When TryConnect has something to do.
  [[nodiscard]] Time next_try() const { return next_try_; }

  // True when a connection has just been made.
  bool TryConnect(Time now);
  // What has come. The link is down afterwards when it broke.
  std::vector<Message> Read(Time now);
  void Send(Time now, const Message& message);
  void Flush(Time now);
  void Drop(Time now);

 private:
  const std::string path_;
  FramedSocket socket_;
  std::string foreign_;
  Time next_try_{};
  Duration pause_ = milliseconds(20);
};

}  // namespace rewire
