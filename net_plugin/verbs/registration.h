// Memory that NCCL has registered, with its keys on each NIC of an adapter: what stands behind
// NCCL's handle of it. Immutable: made by the service thread, read by the progress thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/verbs/nic.h"

namespace rewire::net {

struct Registration {
  std::vector<std::shared_ptr<rdma::MemoryRegion>> regions;  // by NIC
  bool host = true;                                          // processors can read and write it
};

absl::StatusOr<std::unique_ptr<Registration>> Register(std::span<const std::shared_ptr<Nic>> nics,
                                                       const void* data, size_t bytes, int type);
absl::StatusOr<std::unique_ptr<Registration>> RegisterDmabuf(
    std::span<const std::shared_ptr<Nic>> nics, const void* data, size_t bytes, int type,
    uint64_t offset, int fd);

}  // namespace rewire::net
