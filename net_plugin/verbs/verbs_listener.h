// NCCL's listening end over RDMA: takes the links that arrive for this listener, and returns the
// first link whose rails are joined. Threads: see core/comm.h.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "net_plugin/socket/link.h"
#include "net_plugin/transport/comm.h"
#include "reconfig/base/clock.h"

namespace rewire::net {

class Adapter;
class Links;

class VerbsListener final : public Listener {
 public:
  VerbsListener(uint64_t id, const Adapter* adapter, Links* links)
      : id_(id), adapter_(adapter), links_(links) {}
  ~VerbsListener() override;
  absl::StatusOr<std::unique_ptr<Receiver>> Accept() override;

 private:
  struct Arrival {
    std::unique_ptr<Link> link;
    Time deadline;
  };

  const uint64_t id_;
  const Adapter* const adapter_;
  Links* const links_;
  std::list<Arrival> arrivals_;
};

}  // namespace rewire::net
