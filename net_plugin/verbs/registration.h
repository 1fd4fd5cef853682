// Memory that NCCL has registered, with its keys on each NIC of a connection: the object behind
// NCCL's memory handle. The chosen NICs register the memory at once, the fallback NICs at its first
// use there. The service thread creates and destroys the object; the progress thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/verbs/nic.h"
#include "reconfig/abi/net_core.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net {

struct Memory {
  const void* data = nullptr;
  size_t bytes = 0;
  int type = kPtrHost;
  int dmabuf = -1;      // descriptor; -1: registered by address
  uint64_t offset = 0;  // within the dmabuf
};

class Registration {
 public:
  // `run` executes slow work. A chosen NIC that has failed is skipped.
  static absl::StatusOr<std::unique_ptr<Registration>> Make(
      const Nics& nics, const Memory& memory, std::function<void(std::function<void()>)> run);
  // Make() and the destructor for NCCL's memory handle, a void*.
  static absl::StatusOr<void*> MakeHandle(const Nics& nics, const Memory& memory,
                                          std::function<void(std::function<void()>)> run);
  static void DeleteHandle(void* handle) { delete static_cast<Registration*>(handle); }
  // When the destructor returns, this object holds no region any more.
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // True if processors can read and write the memory.
  [[nodiscard]] bool host() const { return memory_.type == kPtrHost; }
  // True if sockets can carry the memory: directly, or by way of Staging.
  [[nodiscard]] bool carried() const { return carried_; }
  // Returns the region on the NIC with this number in Nics; null: no region there (yet).
  [[nodiscard]] const rdma::MemoryRegion* Find(size_t nic) const;
  // Like Find(), but also starts the registration on a fallback NIC if it is missing and possible.
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
  std::vector<std::shared_ptr<Late>> late_;                   // by fallback NIC
};

}  // namespace rewire::net
