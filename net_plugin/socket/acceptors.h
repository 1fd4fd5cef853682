// The sockets on which links arrive, and the connections that are not authenticated yet. This class
// keeps few unauthenticated connections, each for a short time. A flood drops its own connections,
// not a peer's, and a process at its descriptor limit waits without spinning.
//
// Thread-compatible: Links calls Acceptors under the mutex of Links. No call blocks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/wire_format.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/listening_socket.h"

namespace rewire::net {

class Acceptors {
 public:
  struct Options {
    Duration hello = seconds(5);   // from the accept to the hello
    Duration proof = seconds(30);  // from the accept to the proof: a real peer may be busy
    // Limit on connections that have not named a listener of this process.
    size_t most_without_hello = 64;
    // Limit on connections that have named a listener and whose proof is awaited.
    size_t most_challenged = 1024;
  };
  // The link key of the listener that a hello names; nullopt: this process has no such listener.
  using KeyOf = std::function<std::optional<Key>(const Hello&)>;
  using Proved = std::function<void(UniqueFd, const Hello&)>;
  using Refused = std::function<void(const std::string& why)>;

  Acceptors(Options options, KeyOf key_of, Proved proved, Refused refused);

  // Returns the address for peers to connect to. The first call for a local address makes a socket.
  absl::StatusOr<sockaddr_storage> Listen(
      const sockaddr_storage& local, const std::function<absl::StatusOr<UniqueFd>(int)>& socket_of);

  // Readable by poll(2) or epoll(7) when Pump() has something to do, deadlines included.
  [[nodiscard]] int events() const { return events_.get(); }
  // Accepts connections, reads what they sent, and drops connections past their deadline.
  void Pump(Time now);

 private:
  struct Acceptor {
    ListeningSocket listener;
    sockaddr_storage local{};  // as passed to Listen()
    sockaddr_storage bound{};
  };
  struct Pending {
    UniqueFd fd;
    uint64_t source = 0;
    Time since;
    std::string bytes;
    std::optional<Hello> hello;  // set: the connection's proof is awaited
    Code expected{};
  };

  void TakeAll(Time now, Acceptor* acceptor);
  // False: the caller drops the connection. `pending->fd` is not valid after a correct proof.
  bool Hear(Pending* pending);
  bool OnHello(Pending* pending, const Hello& hello);
  // Drops one connection if more than `above` are challenged, or are not: the oldest of the host
  // that has most. False: at most `above` are.
  bool DropPending(bool challenged, size_t above);
  void KeepLimits();
  [[nodiscard]] Time DeadlineOf(const Pending& pending) const;
  void DropLate(Time now);
  void Drop(std::map<int, Pending>::iterator pending, const char* why);
  void SetTimer(Time now);
  void Watch(int fd);
  // Must precede the close of a descriptor: a forked child may also have the descriptor.
  void Unwatch(int fd);

  const Options options_;
  const KeyOf key_of_;
  const Proved proved_;
  const Refused refused_;
  UniqueFd events_;
  UniqueFd timer_;
  std::map<int, Acceptor> acceptors_;  // by descriptor, like pending_
  std::map<int, Pending> pending_;
};

}  // namespace rewire::net
