// What NCCL sees as one RDMA device: a port, or several that a virtual device joins. Listens and
// connects for it, over the process's links. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/socket/links.h"
#include "net_plugin/verbs/connection.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Adapter {
 public:
  // `others`: those of the process that stand in for its own, the first ones first. `control`: the
  // local address of its links' TCP connections.
  Adapter(const std::vector<std::shared_ptr<Nic>>& own,
          const std::vector<std::shared_ptr<Nic>>& others, const sockaddr_storage& control,
          Links* links, const ConnectionOptions& options);

  [[nodiscard]] const std::vector<std::shared_ptr<Nic>>& nics() const { return own_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] uint64_t id() const { return id_; }

  // What the handle must say.
  absl::StatusOr<ListenAddress> Listen();
  std::unique_ptr<Listener> MakeListener(uint64_t listener);
  // Null: not yet. Of an address of another adapter.
  absl::StatusOr<std::unique_ptr<Sender>> Connect(ListenAddress* address);

 private:
  friend class VerbsListener;
  struct Joining {
    std::unique_ptr<Link> link;
    Time deadline;  // since somebody asked for it last
  };

  // `peer`: of the receiving side, for the sending one.
  [[nodiscard]] Connection* Attach(Link* link, const ListenAddress* peer) const;

  const std::vector<std::shared_ptr<Nic>> own_;
  const Nics nics_;  // and the others
  const std::string name_;
  const uint64_t id_;
  const sockaddr_storage control_;
  Links* const links_;
  const ConnectionOptions options_;
  Mutex mutex_;
  std::map<uint64_t, Joining> joining_ REWIRE_GUARDED_BY(mutex_);  // by attempt
};

}  // namespace rewire::net
