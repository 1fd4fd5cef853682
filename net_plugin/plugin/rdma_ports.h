// Opens this process's RDMA ports as NCCL_IB_DISABLE, NCCL_IB_HCA and the REWIRE_NET_ settings
// select. Net calls both functions once, when the plugin starts.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/nic.h"

namespace rewire::net {

// Returns at least one port, or the reason why none is usable.
absl::StatusOr<std::vector<std::shared_ptr<Nic>>> OpenPorts();
ConnectionOptions OptionsFromSettings();

}  // namespace rewire::net
