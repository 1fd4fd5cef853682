// The identity of a communicator, computed alike on all its ranks from data that all ranks know.
//
// For the shim's core (every communicator) and for the participant (the unique ids that
// rewireUniqueId() returns). Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/hash.h"
#include "reconfig/world/world.h"

namespace rewire {

// Identifies a communicator made from a unique id (128 bytes; the first id of several).
inline CommunicatorId IdentityOfUniqueId(const void* unique_id) {
  CommunicatorId id{ContentHash(unique_id, NCCL_UNIQUE_ID_BYTES, 0),
                    ContentHash(unique_id, NCCL_UNIQUE_ID_BYTES, uint64_t{1} << 32)};
  if (id == kUpdateBoundary) id.low = 1;
  return id;
}

// Identifies the child of the parent's n-th split or grow, counted from 0. color: the caller's
// color in a split, or the number of ranks in a grow.
inline CommunicatorId IdentityOfChild(const CommunicatorId& parent, uint64_t nth, int64_t color) {
  const auto key = static_cast<uint64_t>(color);
  CommunicatorId id{MixWord(parent.high, nth) + MixWord(key, 1),
                    MixWord(parent.low, nth) + MixWord(key, 2)};
  if (id == kUpdateBoundary) id.low = 1;
  return id;
}

// Identifies the child of the parent's n-th shrink that excluded these ranks, counted from 0. The
// excluded ranks do not call, so all callers agree only on the count of shrinks with equal
// exclusions.
inline CommunicatorId IdentityOfShrunk(const CommunicatorId& parent, uint64_t nth,
                                       std::span<const int> excluded) {
  const uint64_t ranks = ContentHash(excluded.data(), excluded.size_bytes(), 0);
  // No split has a negative color.
  return IdentityOfChild({MixWord(parent.high, ranks), MixWord(parent.low, ranks)}, nth, -1);
}

}  // namespace rewire
