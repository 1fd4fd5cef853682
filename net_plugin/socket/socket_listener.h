// NCCL's listening end over sockets: accepts one link. Threads: see core/comm.h.
#pragma once

#include <cstdint>
#include <memory>

#include "net_plugin/transport/comm.h"

namespace rewire::net {

class Links;

class SocketListener final : public Listener {
 public:
  SocketListener(uint64_t id, Links* links) : id_(id), links_(links) {}
  ~SocketListener() override;
  absl::StatusOr<std::unique_ptr<Receiver>> Accept() override;

 private:
  const uint64_t id_;
  Links* const links_;
};

}  // namespace rewire::net
