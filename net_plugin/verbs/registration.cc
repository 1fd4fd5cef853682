#include "net_plugin/verbs/registration.h"

#include "net_plugin/core_abi.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {

absl::StatusOr<std::unique_ptr<Registration>> Register(std::span<const std::shared_ptr<Nic>> nics,
                                                       const void* data, size_t bytes, int type) {
  auto out = std::make_unique<Registration>();
  out->host = type == kPtrHost;
  for (const std::shared_ptr<Nic>& nic : nics) {
    REWIRE_ASSIGN_OR_RETURN(auto region, nic->memory().Get(data, bytes));
    out->regions.push_back(std::move(region));
  }
  return out;
}

absl::StatusOr<std::unique_ptr<Registration>> RegisterDmabuf(
    std::span<const std::shared_ptr<Nic>> nics, const void* data, size_t bytes, int type,
    uint64_t offset, int fd) {
  auto out = std::make_unique<Registration>();
  out->host = type == kPtrHost;
  for (const std::shared_ptr<Nic>& nic : nics) {
    REWIRE_ASSIGN_OR_RETURN(auto region, nic->memory().GetDmabuf(data, bytes, offset, fd));
    out->regions.push_back(std::move(region));
  }
  return out;
}

}  // namespace rewire::net
