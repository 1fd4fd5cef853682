// All links of this process: where others may connect, those who are on their way in or out, and
// links at rest, which the next connection between the same two processes takes up at once. One
// object per process; thread-safe; no call blocks. Accept() and Connect(), which NCCL calls until
// they succeed, do the work for their own links. A worker thread (workers.h) looks after
// connections that arrive, so that none is kept while NCCL calls nothing.
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
#include "reconfig/base/mutex.h"

namespace rewire::net {

struct LinksOptions {
  Key job;                         // REWIRE_NET_KEY; zero: none
  Duration greeting = seconds(5);  // for a connection's hello; so long a dropped one is made again
  Duration connect = seconds(30);  // since somebody asked for an attempt last
  Duration answer = seconds(300);  // for who listens, however often it is asked
};

class Links : private Workers::Work {
 public:
  explicit Links(LinksOptions options);
  ~Links() override;

  // A place to connect to at this local address (port 0), and who waits there.
  absl::StatusOr<ListenAddress> Listen(const sockaddr_storage& local);
  void Unlisten(uint64_t listener);
  // The next link that came for it; null: none yet.
  absl::StatusOr<std::unique_ptr<Link>> Accept(uint64_t listener);

  // From this local address, with so many streams, for this RDMA device (0: for none). Null: not
  // yet; `address->attempt` keeps the place meanwhile. An attempt that nobody asks for again is
  // given up after its time.
  absl::StatusOr<std::unique_ptr<Link>> Connect(const sockaddr_storage& local, int streams,
                                                ListenAddress* address, uint64_t device = 0);

  // At rest: the sender has written its close, the receiver has taken every message, and says so to
  // the sender's side, which only then takes the link up again.
  void ReturnSending(std::unique_ptr<Link> link);
  void ReturnReceiving(std::unique_ptr<Link> link);

  [[nodiscard]] NetCounters counters() const;

 private:
  struct Arrival {  // a link that is not whole yet
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
    std::string in;   // of the challenge, as far as it has come
    bool proved = false;
    Time again{};  // not before then, when `fd` is not valid
  };
  struct Attempt {
    Time deadline;
    Time begun;
    Key key;  // the listener's link key
    std::unique_ptr<Link> link;
    std::vector<Dial> dials;  // one for each stream
    std::string welcome;      // as far as it has come
  };

  void Pump() REWIRE_REQUIRES(mutex_);
  // Workers::Work: what arrives while NCCL calls nothing.
  void Drive(size_t stream) override;
  // A stream whose sender has proved itself.
  void OnProved(UniqueFd fd, const Hello& hello) REWIRE_REQUIRES(mutex_);
  // Reads what came on a resting link: false when it cannot be used again.
  bool Wake(std::unique_ptr<Link>* link) REWIRE_REQUIRES(mutex_);
  void Sweep(Time now) REWIRE_REQUIRES(mutex_);
  std::unique_ptr<Link> TakeResting(uint64_t peer, uint64_t rail, size_t streams)
      REWIRE_REQUIRES(mutex_);
  absl::StatusOr<Attempt> Begin(const sockaddr_storage& local, int streams,
                                const ListenAddress& address) REWIRE_REQUIRES(mutex_);
  absl::Status Start(Dial* dial, const sockaddr_storage& local, const sockaddr_storage& to)
      REWIRE_REQUIRES(mutex_);
  // True when the link is made.
  absl::StatusOr<bool> Advance(Attempt* attempt, const sockaddr_storage& local,
                               const ListenAddress& address) REWIRE_REQUIRES(mutex_);
  absl::Status AdvanceDial(Attempt* attempt, Dial* dial, const sockaddr_storage& local,
                           const ListenAddress& address) REWIRE_REQUIRES(mutex_);
  // A connection that ended before the peer's challenge is made again.
  absl::Status Again(const Attempt& attempt, Dial* dial, const std::string& where, int error)
      REWIRE_REQUIRES(mutex_);
  void Refuse(const char* why) REWIRE_REQUIRES(mutex_);
  void Watch(int fd) REWIRE_REQUIRES(mutex_);
  // Before it is closed: a forked child may also have it.
  void Unwatch(int fd) REWIRE_REQUIRES(mutex_);
  // What rests is dropped when there are no descriptors left. The socket, or why there is none.
  absl::StatusOr<UniqueFd> MakeSocket(int family) REWIRE_REQUIRES(mutex_);

  const LinksOptions options_;
  const uint64_t incarnation_;
  mutable Mutex mutex_;
  UniqueFd events_;  // of links at rest
  Acceptors acceptors_ REWIRE_GUARDED_BY(mutex_);
  std::optional<uint64_t> background_ REWIRE_GUARDED_BY(mutex_);  // with the workers
  std::map<int, std::unique_ptr<Link>> receiving_
      REWIRE_GUARDED_BY(mutex_);                                    // at rest, by descriptor
  std::map<uint64_t, Arrival> arrivals_ REWIRE_GUARDED_BY(mutex_);  // by link
  std::map<uint64_t, Waiting> waiting_ REWIRE_GUARDED_BY(mutex_);   // by listener
  std::map<uint64_t, Attempt> attempts_ REWIRE_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Link>> sending_ REWIRE_GUARDED_BY(mutex_);  // at rest
  Time swept_ REWIRE_GUARDED_BY(mutex_);
  size_t most_resting_;  // descriptors
  NetCounters counters_ REWIRE_GUARDED_BY(mutex_) = {};
};

}  // namespace rewire::net
