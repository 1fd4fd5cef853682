// All links of this process: those that arrive for its listeners, those that are being made
// (LinkAttempt), and idle links (IdleLinks). The next connection between the same two processes
// reuses an idle link at once. One object per process. Thread-safe. No call blocks. NCCL calls
// Accept() and Connect() until they succeed, and they do the work for their own links. A worker
// thread (workers.h) handles arriving connections, so that their deadlines hold while NCCL makes no
// call.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/acceptors.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/socket/link_attempt.h"
#include "net_plugin/socket/wire_format.h"
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

  // Keep a link for reuse; see IdleLinks.
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
  struct Attempt {
    Time deadline;
    LinkAttempt link;
  };

  void Pump() REWIRE_REQUIRES(mutex_);
  // Workers::Work: handles arriving connections while NCCL makes no call.
  void Drive(size_t stream) override;
  // Adds a stream whose sender is authenticated to its link.
  void OnProved(UniqueFd fd, const Hello& hello) REWIRE_REQUIRES(mutex_);
  void Sweep(Time now) REWIRE_REQUIRES(mutex_);
  // Opens an idle link for this listener; null: there is none.
  std::unique_ptr<Link> Reuse(const ListenAddress& address, uint64_t rail, size_t streams)
      REWIRE_REQUIRES(mutex_);
  void Refuse(const std::string& why) REWIRE_REQUIRES(mutex_);
  // Makes a socket; drops the idle links and retries once when the process has no descriptor left.
  absl::StatusOr<UniqueFd> MakeSocket(int family) REWIRE_REQUIRES(mutex_);

  const LinksOptions options_;
  const uint64_t incarnation_;
  mutable Mutex mutex_;
  Acceptors acceptors_ REWIRE_GUARDED_BY(mutex_);
  std::optional<uint64_t> background_ REWIRE_GUARDED_BY(mutex_);  // its id with the workers
  IdleLinks idle_ REWIRE_GUARDED_BY(mutex_);
  std::map<uint64_t, Arrival> arrivals_ REWIRE_GUARDED_BY(mutex_);  // by link
  std::map<uint64_t, Waiting> waiting_ REWIRE_GUARDED_BY(mutex_);   // by listener
  std::map<uint64_t, Attempt> attempts_ REWIRE_GUARDED_BY(mutex_);  // by their numbers
  Time swept_ REWIRE_GUARDED_BY(mutex_);
  LinkCounters counters_;
};

}  // namespace rewire::net
