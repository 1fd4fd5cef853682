// Who is in the world, in the words of design.md. Plain values; used by everyone above base.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/auth/key.h"

namespace rewire {

using MemberId = uint32_t;  // one process driving one GPU; never changes, never used again
using Epoch = uint64_t;     // fencing token; only ever increases; 0: no world yet

// The identity of a virtual communicator, equal on all its ranks: a hash of the unique id it was
// made with; a child's is a hash of (parent, n-th split, color).
struct CommunicatorId {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const CommunicatorId&) const = default;
};

// The update boundary is cut like a communicator: this id, counter = updates begun.
inline constexpr CommunicatorId kUpdateBoundary{0, 0};

struct WorldMember {
  MemberId member = 0;
  uint64_t incarnation = 0;  // differs for every process that ever had this id
  std::string data_address;  // where it takes state fragments, "127.0.0.1:40001"
  bool operator==(const WorldMember&) const = default;
};

// An ordered set of members at one epoch. A member's slot is its index.
struct World {
  Epoch epoch = 0;
  std::vector<WorldMember> members;
  bool operator==(const World&) const = default;

  [[nodiscard]] std::optional<uint32_t> SlotOf(MemberId member) const {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].member == member) return static_cast<uint32_t>(i);
    }
    return std::nullopt;
  }
};

// At operation `cut` of a communicator every member goes to the next generation; at operation
// `warm` (before it) each puts one tiny operation on the new generation on the application's
// stream.
struct Cut {
  CommunicatorId communicator;
  uint64_t warm = 0;
  uint64_t cut = 0;
  bool operator==(const Cut&) const = default;
};

// The value behind the store's compare-and-swap: the commit is one change of this record. Besides
// the commit a leader writes it when it starts (which fences the leader before it) and when it
// begins a transition (which reserves the epoch and the ids of new members, so that neither is used
// twice).
struct WorldRecord {
  World world;
  std::vector<Cut> cuts;     // of the last same-member swap; empty otherwise
  Key secret;                // of this epoch: members prove to each other that they have it
  uint64_t revision = 0;     // one more at every write: what the compare-and-swap compares
  Epoch reserved_epoch = 0;  // the highest epoch that was ever begun
  MemberId next_member = 0;  // the lowest id that was never given out
  bool operator==(const WorldRecord&) const = default;
};

}  // namespace rewire
