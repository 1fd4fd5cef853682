// Chooses the port's GID that a queue pair uses. Pure; thread-safe.
#pragma once

#include <optional>
#include <span>

#include "reconfig/rdma/gid.h"
#include "reconfig/rdma/port.h"

namespace rewire::rdma {

struct GidWish {
  // The peer's choice. Only a row that can reach the peer qualifies (same type, same family,
  // link-local with link-local); among those, the longest common prefix wins.
  std::optional<GidEntry> peer;
  // Only rows of this network interface; 0: any interface.
  uint32_t interface = 0;
  // This side's choice before the table changed. The choice is kept, at its new index, while the
  // table has it, because the peer knows it.
  std::optional<GidEntry> previous;
};

// RoCE: v2 before v1; within a type IPv4, then other IPv6, then link-local; ties: the lowest index.
// InfiniBand: the first row. Returns nothing if no row qualifies. Indexes change with link flaps
// and new or removed addresses: read the table and choose again after every kGidChange and
// kPortActive.
[[nodiscard]] std::optional<GidEntry> ChooseGid(std::span<const GidEntry> table, LinkLayer link,
                                                const GidWish& wish);

}  // namespace rewire::rdma
