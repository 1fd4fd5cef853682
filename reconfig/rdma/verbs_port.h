// Queries an open device and its ports by the verbs and sysfs, for the verbs driver. Thread-safe.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "reconfig/rdma/port.h"
#include "reconfig/rdma/verbs_library.h"

namespace rewire::rdma {

[[nodiscard]] absl::StatusOr<PortInfo> QueryVerbsPort(const VerbsLibrary& library,
                                                      ibv_context* context, uint8_t port);
[[nodiscard]] absl::StatusOr<DeviceInfo> QueryVerbsDevice(const VerbsLibrary& library,
                                                          ibv_context* context);

// Converts a packet size of a path to the verbs' number; nothing for an invalid size.
[[nodiscard]] std::optional<ibv_mtu> MtuOf(uint32_t bytes);

}  // namespace rewire::rdma
