// The members of a world, the world record, and a summary of the slots that have a world's state,
// in the words of docs/architecture.md. Plain values for all rooms above auth; thread-compatible.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/auth/key.h"

namespace rewire {

// One process, which usually drives one GPU. A member's id never changes and is never reused.
using MemberId = uint32_t;
// A fencing token that only increases; 0: no world yet.
using Epoch = uint64_t;

// The identity of a virtual communicator, equal on all its ranks: a hash of the communicator's
// unique id, or for a child a hash of (parent, n-th split, color).
struct CommunicatorId {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const CommunicatorId&) const = default;
};

// The update boundary is cut like a communicator with this id, whose counter is the updates begun.
inline constexpr CommunicatorId kUpdateBoundary{0, 0};

struct WorldMember {
  MemberId member = 0;
  uint64_t incarnation = 0;  // differs for every process that ever had this id
  std::string data_address;  // takes state fragments, for example "127.0.0.1:40001"
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

// At operation `cut` of a communicator every member goes to the next generation. At operation
// `warm`, before `cut`, each member issues one tiny operation on the new generation on the
// application's stream.
struct Cut {
  CommunicatorId communicator;
  uint64_t warm = 0;
  uint64_t cut = 0;
  bool operator==(const Cut&) const = default;
};

// The value that the store compares and swaps: the commit is one change of this record. A leader
// also writes the record when the leader starts, which fences the previous leader. A further write
// at the beginning of a transition reserves the epoch and the new members' ids against reuse.
struct WorldRecord {
  World world;
  std::vector<Cut> cuts;     // of the last same-member swap; empty otherwise
  Key secret;                // this epoch's: members prove to each other that they have it
  uint64_t revision = 0;     // grows by one at every write; the compare-and-swap compares it
  Epoch reserved_epoch = 0;  // the highest epoch that was ever begun
  MemberId next_member = 0;  // the lowest id that was never assigned
  bool operator==(const WorldRecord&) const = default;
};

// State that some slots have alike, and the slots that can supply it at a version. One of three is
// enough: any of `live` whose state in place is whole; the own copies of any of `whole`; or the
// copies of all of `pieces`, their own or those that their next slots keep. Ascending.
struct StateNeed {
  std::vector<uint32_t> live;
  std::vector<uint32_t> whole;
  std::vector<uint32_t> pieces;
  auto operator<=>(const StateNeed&) const = default;
};

// The needs of a version of a world's state. They follow from the tensors' layouts, so they are
// equal on all members of the world.
using StateNeeds = std::vector<StateNeed>;

// The members from which a version of the state is restored.
struct RestoreSources {
  std::vector<MemberId> live;   // members whose state in place is whole at this version
  std::vector<MemberId> own;    // members with the copies of their own slot
  std::vector<MemberId> buddy;  // members with the copies of the previous slot
  bool operator==(const RestoreSources&) const = default;
};

}  // namespace rewire
