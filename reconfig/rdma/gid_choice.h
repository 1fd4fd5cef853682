// Which of a port's GIDs a queue pair uses. Pure; any thread.
#pragma once

#include <optional>
#include <span>

#include "reconfig/rdma/gid.h"
#include "reconfig/rdma/port.h"

namespace rewire::rdma {

struct GidWish {
  // What the peer has chosen: only a row that can talk to it will do (same type, same family,
  // link-local with link-local), and the one that shares the longest prefix with it is the best.
  std::optional<GidEntry> peer;
  // Only rows of this network interface; 0: of any.
  uint32_t interface = 0;
  // What this side used before the table changed: kept, at its new index, as long as it is there,
  // because the peer knows it.
  std::optional<GidEntry> previous;
};

// RoCE: v2 before v1; within a type IPv4, then other IPv6, then link-local; the lowest index last.
// InfiniBand: the first row. Nothing when no row will do. Indexes change when a link flaps or an
// address comes or goes: after every kGidChange and kPortActive the table is read and chosen from
// again.
[[nodiscard]] std::optional<GidEntry> ChooseGid(std::span<const GidEntry> table, LinkLayer link,
                                                const GidWish& wish);

}  // namespace rewire::rdma
