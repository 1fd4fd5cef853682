// The connections on the agent's Unix socket: checks the peer's user, receives whole frames, and
// queues bounded output.
//
// No call blocks, whatever a peer does. Connections are closed and counted (Counters) for these
// reasons: the peer has another user, sent malformed or oversized input, did not read, or sent no
// frame in time, or there are too many connections. Owned by the agent's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"
#include "reconfig/base/listening_socket.h"

namespace rewire::control {

class Connections {
 public:
  using Id = uint64_t;  // never used twice

  class Events {
   public:
    virtual ~Events() = default;
    // `frame` is valid during the call. Both functions may call all methods but Watch() and
    // Handle().
    virtual void OnFrame(Id id, const std::string& frame) = 0;
    // Reports that the connection is closed, after all its earlier frames. Called from Handle()
    // only. Not called after Close() and CloseAfterWriting().
    virtual void OnClosed(Id id, const std::string& why) = 0;
  };

  struct Options {
    // Limit of the time until the first frame, and of the last write in CloseAfterWriting().
    Duration first_frame = seconds(10);
    size_t max_queue = 16 * kFrameLimit;  // limit of unsent bytes to one peer
    size_t max_connections = 4096;
    size_t max_silent = 64;  // connections that sent no frame; one is dropped for the next
  };
  struct Counters {
    uint64_t accepted = 0;
    uint64_t wrong_user = 0;
    uint64_t garbage = 0;    // closed because of malformed input
    uint64_t slow = 0;       // closed because the peer did not read
    uint64_t half_open = 0;  // closed because the peer sent nothing
    uint64_t refused = 0;    // closed because of too many connections
  };

  // `events` must outlive the object.
  Connections(UniqueFd listener, Options options, Events* events);

  // The agent's loop calls Watch() before each wait, and Handle() after it.
  void Watch(Time now, PollSet* turn);
  void Handle(Time now, const PollSet& turn);

  // Queues a frame. Has no effect on a closed connection; closes a connection whose queue is full.
  void Send(Id id, std::string_view frame);
  // Handle() closes the descriptors of the connections below, and calls OnClosed for the last two.
  // Close() drops unsent output. CloseAfterWriting() closes when the queue is written, or after
  // Options::first_frame.
  void Close(Id id);
  void CloseAfterWriting(Time now, Id id);
  // Closes a connection after malformed input: counts, and logs the first one.
  void CloseForGarbage(Id id, const std::string& what);
  // Closes a connection whose peer is ending, and reads its pending data before.
  void CloseAfterReading(Id id, const std::string& why);
  // Reads the connection's pending data, up to the end of the stream. For a caller that has learned
  // of the peer's death in another way.
  void ReadNow(Id id);
  // Calls ReadNow() for every connection. Call before members are judged silent.
  void ReadAll();
  // Writes as much as the sockets accept now, so that an answer does not wait for the next turn.
  void FlushAll();

  [[nodiscard]] bool IsOpen(Id id) const;
  [[nodiscard]] pid_t PidOf(Id id) const;  // 0: an unknown connection
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] size_t size() const { return open_.size(); }

 private:
  struct Connection {
    FramedSocket socket;
    PeerCredentials peer;
    Time since{};
    bool spoke = false;            // a whole frame has come
    std::optional<Time> deadline;  // for the first frame, or for writing the queue
    bool leaving = false;          // closes when its queue is empty; not read
    bool silent = false;           // Close() was called, so that OnClosed is not
    std::string dead;              // the reason for dropping the connection; empty while open
  };
  void AcceptAll(Time now);
  // Drops one of the silent connections when there are more than `above`. Returns whether one was
  // dropped.
  bool DropSilent(size_t above);
  void Read(Id id, Connection* c);
  void Write(Connection* c);
  void Sweep(Time now);

  ListeningSocket listener_;
  const Options options_;
  Events* const events_;
  std::map<Id, std::unique_ptr<Connection>> open_;
  Id next_ = 1;
  Counters counters_;
};

}  // namespace rewire::control
