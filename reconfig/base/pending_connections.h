// Chooses the unauthenticated connection that a listener at its limit drops: the oldest of the
// source that has most. One source's flood therefore drops its own connections first, and a peer
// that has just connected stays. Thread-safe: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "reconfig/base/check.h"
#include "reconfig/base/clock.h"

namespace rewire {

struct PendingConnection {
  uint64_t source = 0;  // identifies the source: an address or a process
  Time since{};
};

// Returns an index into `pending`, which must not be empty.
inline size_t PendingConnectionToDrop(std::span<const PendingConnection> pending) {
  REWIRE_CHECK(!pending.empty());
  std::map<uint64_t, size_t> of_source;
  for (const PendingConnection& n : pending) ++of_source[n.source];
  size_t drop = 0;
  for (size_t i = 1; i < pending.size(); ++i) {
    const size_t mine = of_source[pending[i].source];
    const size_t best = of_source[pending[drop].source];
    if (mine > best || (mine == best && pending[i].since < pending[drop].since)) drop = i;
  }
  return drop;
}

}  // namespace rewire
