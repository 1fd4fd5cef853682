// The sockets on which links arrive, and the connections that are not authenticated yet. Few of
// those are kept, each for a short time: a flood drops its own connections, not a peer's, and a
// process at its descriptor limit waits without spinning.
//
// Thread-compatible: Links calls it under its mutex. No call blocks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/hello.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/listening_socket.h"

namespace rewire::net {

class Acceptors {
 public:
  struct Options {
    Duration hello = seconds(5);   // from its connection on
    Duration proof = seconds(30);  // also from there: it knows a listener, and may be busy
    // Connections that have not named a listener of this process.
    size_t most_newcomers = 64;
    // Connections that have, and whose proof is awaited.
    size_t most_challenged = 1024;
  };
  // The link key of the listener that a hello names; nothing: there is none here.
  using KeyOf = std::function<std::optional<Key>(const Hello&)>;
  using Proved = std::function<void(UniqueFd, const Hello&)>;
  using Refused = std::function<void(const char* why)>;

  Acceptors(Options options, KeyOf key_of, Proved proved, Refused refused);

  // Where others connect to for this local address; a socket is made at the first call for it.
  absl::StatusOr<sockaddr_storage> Listen(
      const sockaddr_storage& local, const std::function<absl::StatusOr<UniqueFd>(int)>& socket_of);

  // Readable by poll(2) or epoll(7) when Pump() has something to do, deadlines included.
  [[nodiscard]] int events() const { return events_.get(); }
  // Takes what has come, and drops what is late.
  void Pump(Time now);

 private:
  struct Acceptor {
    ListeningSocket listener;
    sockaddr_storage local{};  // as asked for
    sockaddr_storage bound{};
  };
  struct Guest {
    UniqueFd fd;
    uint64_t source = 0;
    Time since;
    std::string bytes;
    std::optional<Hello> hello;  // set: its proof is awaited
    Code expected{};
  };

  void TakeAll(Time now, Acceptor* acceptor);
  // False: the connection is to be dropped. `guest->fd` is not valid once it is proved.
  bool Hear(Guest* guest);
  bool OnHello(Guest* guest, const Hello& hello);
  // Makes room when more than `above` of the guests are newcomers, or are challenged: the oldest of
  // the host that has most is dropped. False: there are not so many.
  bool DropGuest(bool challenged, size_t above);
  void KeepLimits();
  [[nodiscard]] Time DeadlineOf(const Guest& guest) const;
  void DropLate(Time now);
  void Drop(std::map<int, Guest>::iterator guest, const char* why);
  void SetTimer(Time now);
  void Watch(int fd);
  // Before a descriptor is closed: a forked child may also have it.
  void Unwatch(int fd);

  const Options options_;
  const KeyOf key_of_;
  const Proved proved_;
  const Refused refused_;
  UniqueFd events_;
  UniqueFd timer_;
  std::map<int, Acceptor> acceptors_;  // by descriptor, like guests_
  std::map<int, Guest> guests_;
};

}  // namespace rewire::net
