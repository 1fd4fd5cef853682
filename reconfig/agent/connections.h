// The connections on the agent's Unix socket: who may connect, whole frames in, bounded queues out.
//
// Nothing here blocks, whatever the other side does: a peer of another user, a frame that is too
// long, a reader that does not read and a connection that never says a word are each closed and
// counted. Owned by the agent's one thread; Events are called from Handle() only.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"
#include "reconfig/base/listening_socket.h"

namespace rewire {

class Connections {
 public:
  using Id = uint64_t;  // never used twice

  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnFrame(Id id, const std::string& frame) = 0;
    // The connection is gone, and every frame that came before was given. Not called for Close().
    virtual void OnClosed(Id id, const std::string& why) = 0;
  };

  struct Options {
    Duration first_frame = seconds(10);   // a silent newcomer is closed after this time
    size_t max_queue = 16 * kFrameLimit;  // bytes unsent to one peer
    size_t max_connections = 4096;
    size_t max_silent = 64;  // that have not said anything: the oldest is dropped for the next
  };
  struct Counters {
    uint64_t accepted = 0;
    uint64_t wrong_user = 0;
    uint64_t garbage = 0;    // closed for what they sent
    uint64_t slow = 0;       // closed for what they did not read
    uint64_t half_open = 0;  // closed for saying nothing
    uint64_t refused = 0;    // closed because there were too many
  };

  Connections(UniqueFd listener, Options options, Events* events);

  // Before poll(2): adds what to wait for. After it: Handle() with the same entries.
  void AddPolls(Time now, std::vector<pollfd>* polls);
  void Handle(Time now, const std::vector<pollfd>& polls);
  [[nodiscard]] std::optional<Time> NextDeadline() const;

  void Send(Id id, std::string_view frame);
  // Gone at once / when everything queued is written (or the peer does not take it in time).
  void Close(Id id);
  void CloseAfterWriting(Time now, Id id);
  // What came on it is not to be trusted: counted, logged, closed, and OnClosed is called.
  void CloseForGarbage(Id id, const std::string& what);
  // Takes what has arrived on it, up to the end of the stream. For news of the peer's death from
  // elsewhere.
  void ReadNow(Id id);
  // The same on every connection: before silence is judged.
  void ReadAll();
  // Writes what the sockets take now, so that an answer does not wait for the next poll(2).
  void FlushAll();

  [[nodiscard]] bool IsOpen(Id id) const;
  [[nodiscard]] pid_t PidOf(Id id) const;
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] size_t size() const { return open_.size(); }

 private:
  struct Connection {
    FramedSocket socket;
    PeerCredentials peer;
    Time since{};
    bool spoke = false;            // a whole frame has come
    std::optional<Time> deadline;  // to say something, or to take what is queued
    bool leaving = false;          // closes when its queue is empty; nothing is read
    bool silent = false;           // Close() was called: OnClosed is not
    std::string dead;              // why it is to be dropped, empty while it lives
  };
  void AcceptAll(Time now);
  // One of the silent connections, if there are more than `above`.
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

}  // namespace rewire
