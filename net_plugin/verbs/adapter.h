// One RDMA device as NCCL sees it: a port, or several ports that a virtual device joins. The
// adapter listens and connects over the process's links; its listeners return the first link whose
// rails are joined. Thread-safe; the listeners: see net_plugin/transport/comm.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/links.h"
#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/connection.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Adapter {
 public:
  // `others`: the process's fallback NICs, in order of preference. `control`: the local address of
  // the TCP connections of the adapter's links.
  Adapter(const std::vector<std::shared_ptr<Nic>>& own,
          const std::vector<std::shared_ptr<Nic>>& others, const sockaddr_storage& control,
          Links* links, const ConnectionOptions& options);

  [[nodiscard]] const std::vector<std::shared_ptr<Nic>>& nics() const { return own_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] uint64_t id() const { return id_; }

  // Returns the contents of the listener's handle.
  absl::StatusOr<ListenAddress> Listen();
  std::unique_ptr<Listener> MakeListener(uint64_t listener);
  // Connects to another adapter's address. Returns null while the connection is not established.
  absl::StatusOr<std::unique_ptr<Sender>> Connect(ListenAddress* address);

 private:
  class VerbsListener;
  struct Joining {
    std::unique_ptr<Link> link;
    Time deadline;  // counts from the latest Connect() call
  };

  // `peer`: the receiving side's address; null on the receiving side.
  [[nodiscard]] Connection* Attach(Link* link, const ListenAddress* peer) const;

  const std::vector<std::shared_ptr<Nic>> own_;
  const Nics nics_;  // own and fallback NICs
  const std::string name_;
  const uint64_t id_;
  const sockaddr_storage control_;
  Links* const links_;
  const ConnectionOptions options_;
  Mutex mutex_;
  std::map<uint64_t, Joining> joining_ REWIRE_GUARDED_BY(mutex_);  // by attempt
};

}  // namespace rewire::net
