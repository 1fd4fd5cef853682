// The framed Unix connection to the agent, for Participant, and when its messages were sent. A
// broken connection is made again after growing pauses. AgentLink is owned by the member's thread;
// no call blocks longer than a 100 ms connect.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"
#include "reconfig/base/mutex.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

class AgentLink {
 public:
  explicit AgentLink(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] bool connected() const { return socket_.valid(); }
  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] bool WantsWrite() const { return connected() && socket_.WantsWrite(); }
  // Returns the error when another user's process listens on the socket, otherwise an empty string.
  [[nodiscard]] const std::string& foreign() const { return foreign_; }
  // Returns the time from which TryConnect() makes an attempt.
  [[nodiscard]] Time next_try() const { return next_try_; }

  // Returns true when this call has made a connection.
  bool TryConnect(Time now);
  // Returns the complete messages that have arrived. Drops the connection when it is broken or a
  // message is malformed.
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

// Lets a thread wait until the agent has been sent the events that the thread has posted. A thread
// asks, posts Reach() after its events, and waits. Thread-safe.
class SentEvents {
 public:
  // Returns the number of this call.
  uint64_t Ask();
  // The member's thread has come to the events before this call of Ask().
  void Reach(uint64_t call);
  // Everything that the member's thread has come to was sent.
  void NotifySent();
  // Waits until the events before this call of Ask() were sent, End() is called or the deadline.
  void Await(uint64_t call, Time deadline);
  void End();

 private:
  Mutex mutex_;
  CondVar changed_;
  uint64_t asked_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t reached_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t sent_ REWIRE_GUARDED_BY(mutex_) = 0;
  bool ended_ REWIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace rewire::elastic
