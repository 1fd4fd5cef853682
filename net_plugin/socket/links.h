// All links of this process: listeners, links being made, and idle links, which the next connection
// between the same two processes reuses at once. One object per process. Thread-safe. No call
// blocks. NCCL calls Accept() and Connect() until they succeed, and they do the work for their own
// links. A worker thread (workers.h) handles arriving connections, so that their deadlines hold
// while NCCL makes no call.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/acceptors.h"
#include "net_plugin/socket/hello.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/socket/workers.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

struct LinksOptions {
  Key job;                         // REWIRE_NET_KEY; zero: none
  Duration hello = seconds(5);     // limit of a connection's hello, and of redialling
  Duration connect = seconds(30);  // limit of an attempt since its last Connect(), and of a proof
  Duration answer = seconds(300);  // limit of an attempt in total
};

struct LinkCounters {
  Counted links_made{Counter::kNetLinksMade};
  Counted links_reused{Counter::kNetLinksReused};
  Counted unauthenticated{Counter::kNetStrangers};
};

class Links : private Workers::Work {
 public:
  explicit Links(LinksOptions options);
  ~Links() override;

  // Makes a listener at this local address (port 0).
  absl::StatusOr<ListenAddress> Listen(const sockaddr_storage& local);
  void Unlisten(uint64_t listener);
  // Returns the next link that arrived for the listener; null: none yet.
  absl::StatusOr<std::unique_ptr<Link>> Accept(uint64_t listener);

  // Connects from this local address, with `streams` streams, for this RDMA device (0: for none).
  // Null: not yet; `address->attempt` identifies the attempt for the next call. An attempt without
  // a further call is dropped after `connect`.
  absl::StatusOr<std::unique_ptr<Link>> Connect(const sockaddr_storage& local, int streams,
                                                ListenAddress* address, uint64_t device = 0);

  // Keep a link for reuse. The sender has written its close frame. The receiver has taken every
  // message and writes a finished frame; only then does the sender's side reuse the link.
  void ReturnSending(std::unique_ptr<Link> link);
  void ReturnReceiving(std::unique_ptr<Link> link);

  [[nodiscard]] const LinkCounters& counters() const { return counters_; }

 private:
  struct Arrival {  // a link of which some streams have not arrived yet
    Time deadline;
    Hello hello;
    std::vector<UniqueFd> streams;
    size_t have = 0;
  };
  struct Waiting {  // a listener
    Key key;        // its link key
    std::vector<std::unique_ptr<Link>> links;
  };
  struct Dial {  // one connection on its way to a listener
    UniqueFd fd;
    std::string hello;
    std::string out;  // not written yet
    std::string in;   // the part of the challenge that has arrived
    bool proved = false;
    Time again{};  // the time of the next dial, when `fd` is not valid
  };
  struct Attempt {
    Time deadline;
    Time begun;
    Key key;  // the listener's link key
    std::unique_ptr<Link> link;
    std::vector<Dial> dials;  // one for each stream
    std::string welcome;      // the part of the welcome that has arrived
  };

  void Pump() REWIRE_REQUIRES(mutex_);
  // Workers::Work: handles arriving connections while NCCL makes no call.
  void Drive(size_t stream) override;
  // Adds a stream whose sender is authenticated to its link.
  void OnProved(UniqueFd fd, const Hello& hello) REWIRE_REQUIRES(mutex_);
  // Reads the frames that arrived on an idle link. False: the link was opened again and moved to
  // its listener (`*link` is then null), or the link cannot be used again.
  bool Wake(std::unique_ptr<Link>* link) REWIRE_REQUIRES(mutex_);
  void Sweep(Time now) REWIRE_REQUIRES(mutex_);
  std::unique_ptr<Link> TakeIdle(uint64_t peer, uint64_t rail, size_t streams)
      REWIRE_REQUIRES(mutex_);
  absl::StatusOr<Attempt> Begin(const sockaddr_storage& local, int streams,
                                const ListenAddress& address) REWIRE_REQUIRES(mutex_);
  absl::Status Start(Dial* dial, const sockaddr_storage& local, const sockaddr_storage& to)
      REWIRE_REQUIRES(mutex_);
  // True: the link is complete.
  absl::StatusOr<bool> Advance(Attempt* attempt, const sockaddr_storage& local,
                               const ListenAddress& address) REWIRE_REQUIRES(mutex_);
  absl::Status AdvanceDial(Attempt* attempt, Dial* dial, const sockaddr_storage& local,
                           const ListenAddress& address) REWIRE_REQUIRES(mutex_);
  // Schedules another dial for a connection that ended before the peer's challenge.
  absl::Status Again(const Attempt& attempt, Dial* dial, const std::string& where, int error)
      REWIRE_REQUIRES(mutex_);
  void Refuse(const char* why) REWIRE_REQUIRES(mutex_);
  void Watch(int fd) REWIRE_REQUIRES(mutex_);
  // Must precede the close of a descriptor: a forked child may also have the descriptor.
  void Unwatch(int fd) REWIRE_REQUIRES(mutex_);
  // Makes a socket; drops the idle links and retries once when the process has no descriptor left.
  absl::StatusOr<UniqueFd> MakeSocket(int family) REWIRE_REQUIRES(mutex_);

  const LinksOptions options_;
  const uint64_t incarnation_;
  mutable Mutex mutex_;
  UniqueFd events_;  // an epoll of the idle receiving links
  Acceptors acceptors_ REWIRE_GUARDED_BY(mutex_);
  std::optional<uint64_t> background_ REWIRE_GUARDED_BY(mutex_);  // its id with the workers
  std::map<int, std::unique_ptr<Link>> receiving_ REWIRE_GUARDED_BY(mutex_);  // idle, by descriptor
  std::map<uint64_t, Arrival> arrivals_ REWIRE_GUARDED_BY(mutex_);            // by link
  std::map<uint64_t, Waiting> waiting_ REWIRE_GUARDED_BY(mutex_);             // by listener
  std::map<uint64_t, Attempt> attempts_ REWIRE_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Link>> sending_ REWIRE_GUARDED_BY(mutex_);  // idle
  Time swept_ REWIRE_GUARDED_BY(mutex_);
  size_t most_idle_;  // limit on descriptors of idle links, for each direction
  LinkCounters counters_;
};

}  // namespace rewire::net
