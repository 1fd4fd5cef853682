// The RDMA ports of this process, as its environment wants them: NCCL_IB_DISABLE, NCCL_IB_HCA and
// the REWIRE_NET_ settings. Once, when the plugin starts.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/nic.h"

namespace rewire::net {

// At least one, or why there is none.
absl::StatusOr<std::vector<std::shared_ptr<Nic>>> OpenPorts();
ConnectionOptions OptionsFromSettings();

}  // namespace rewire::net
