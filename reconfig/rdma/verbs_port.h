// What the verbs and sysfs say of an open device and its ports. Of the verbs driver; any thread.
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

// Sizes of a path's packets as the verbs number them; nothing for a size that is none.
[[nodiscard]] std::optional<ibv_mtu> MtuOf(uint32_t bytes);

}  // namespace rewire::rdma
