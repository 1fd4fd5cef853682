// All links of this process: where others may connect, those who are on their way in or out, and
// links at rest, which the next connection between the same two processes takes up at once. One
// object per process; any thread; no call blocks, and there is no thread of its own: Accept() and
// Connect(), which NCCL calls until they succeed, look after everything.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/hello.h"
#include "net_plugin/socket/link.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

struct LinksOptions {
  uint64_t job = 0;                // the job's secret; 0: none
  Duration greeting = seconds(5);  // for who connects, until it has said who it is
  Duration connect = seconds(30);  // since somebody asked for an attempt last
  Duration answer = seconds(300);  // for who listens, however often it is asked
};

class Links {
 public:
  explicit Links(LinksOptions options);
  ~Links();

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
  struct Acceptor {
    UniqueFd fd;
    sockaddr_storage local{};  // as asked for
    sockaddr_storage bound{};
  };
  // Somebody who has connected and not said who it is, or whose link's other streams are missing.
  struct Guest {
    UniqueFd fd;
    Time deadline;
    char bytes[kHelloBytes];
    size_t have = 0;
  };
  struct Arrival {  // a link that is not whole yet
    Time deadline;
    Hello hello;
    std::vector<UniqueFd> streams;
    size_t have = 0;
  };
  struct Waiting {  // a listener
    uint64_t key = 0;
    std::vector<std::unique_ptr<Link>> links;
  };
  struct Attempt {
    Time deadline;
    Time begun;
    std::unique_ptr<Link> link;
    std::vector<UniqueFd> fds;
    std::vector<size_t> sent;  // of each stream's hello
    std::string welcome;       // as far as it has come
  };

  void Pump() REWIRE_REQUIRES(mutex_);
  void TakeGuests(const Acceptor& acceptor) REWIRE_REQUIRES(mutex_);
  // False: it is to be dropped.
  bool Hear(Guest* guest) REWIRE_REQUIRES(mutex_);
  void Greet(UniqueFd fd, const Hello& hello) REWIRE_REQUIRES(mutex_);
  // Reads what came on a resting link: false when it cannot be used again.
  bool Wake(std::unique_ptr<Link>* link) REWIRE_REQUIRES(mutex_);
  void Sweep(Time now) REWIRE_REQUIRES(mutex_);
  std::unique_ptr<Link> TakeResting(uint64_t peer, uint64_t rail, size_t streams)
      REWIRE_REQUIRES(mutex_);
  absl::StatusOr<Attempt> Begin(const sockaddr_storage& local, int streams,
                                const ListenAddress& address) REWIRE_REQUIRES(mutex_);
  // True when it is through.
  absl::StatusOr<bool> Advance(Attempt* attempt, const ListenAddress& address)
      REWIRE_REQUIRES(mutex_);
  void Stranger(const char* why) REWIRE_REQUIRES(mutex_);
  void Watch(int fd) REWIRE_REQUIRES(mutex_);
  // Before it is closed: a forked child may have it, too.
  void Unwatch(int fd) REWIRE_REQUIRES(mutex_);
  // What rests is dropped when there are no descriptors left. The socket, or why there is none.
  absl::StatusOr<UniqueFd> MakeSocket(int family) REWIRE_REQUIRES(mutex_);

  const LinksOptions options_;
  const uint64_t incarnation_;
  mutable Mutex mutex_;
  UniqueFd events_;
  std::map<int, Acceptor> acceptors_ REWIRE_GUARDED_BY(mutex_);  // by descriptor, like the next two
  std::map<int, Guest> guests_ REWIRE_GUARDED_BY(mutex_);
  std::map<int, std::unique_ptr<Link>> receiving_ REWIRE_GUARDED_BY(mutex_);  // at rest
  std::map<uint64_t, Arrival> arrivals_ REWIRE_GUARDED_BY(mutex_);            // by link
  std::map<uint64_t, Waiting> waiting_ REWIRE_GUARDED_BY(mutex_);             // by listener
  std::map<uint64_t, Attempt> attempts_ REWIRE_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Link>> sending_ REWIRE_GUARDED_BY(mutex_);  // at rest
  Time swept_ REWIRE_GUARDED_BY(mutex_);
  size_t most_resting_;  // descriptors
  NetCounters counters_ REWIRE_GUARDED_BY(mutex_) = {};
};

}  // namespace rewire::net
