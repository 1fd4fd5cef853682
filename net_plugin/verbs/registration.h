// Memory that NCCL has registered, with its keys on each NIC of a connection: what stands behind
// NCCL's handle of it. The NICs that NCCL has chosen know it from the beginning, those that stand
// in for them when it is first wanted there. Made and ended by the service thread, used by the
// progress thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/core_abi.h"
#include "net_plugin/verbs/nic.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net {

struct Memory {
  const void* data = nullptr;
  size_t bytes = 0;
  int type = kPtrHost;
  int dmabuf = -1;      // descriptor; -1: registered by address
  uint64_t offset = 0;  // in it
};

class Registration {
 public:
  // `run` does what takes long. A chosen NIC that has failed is left out.
  static absl::StatusOr<std::unique_ptr<Registration>> Make(
      const Nics& nics, const Memory& memory, std::function<void(std::function<void()>)> run);
  // Nothing is registered any more when it returns.
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Processors can read and write it.
  [[nodiscard]] bool host() const { return memory_.type == kPtrHost; }
  // It can go over sockets: as it is, or by way of Staging.
  [[nodiscard]] bool carried() const { return carried_; }
  // On a NIC, by its number in Nics. Null: it is not known there.
  [[nodiscard]] const rdma::MemoryRegion* Find(size_t nic) const;
  // The same; where it is not known yet it soon will be, if that is possible.
  [[nodiscard]] const rdma::MemoryRegion* Want(size_t nic);

 private:
  struct Late;

  Registration(const Nics& nics, const Memory& memory,
               std::function<void(std::function<void()>)> run);

  const Nics nics_;
  Memory memory_;
  const bool carried_;
  const std::function<void(std::function<void()>)> run_;
  UniqueFd dmabuf_;                                           // NCCL closes its own
  std::vector<std::shared_ptr<rdma::MemoryRegion>> regions_;  // by chosen NIC
  std::vector<std::shared_ptr<Late>> late_;                   // by NIC that stands in
};

}  // namespace rewire::net
