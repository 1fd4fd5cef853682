// The members that have each part of the state, for a plan: every member its part in place, or
// after a loss the survivors their parts and their copies. Pure; immutable and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "reconfig/state/plan/overlap.h"
#include "reconfig/state/topo/parallel_layout.h"
#include "reconfig/world/world.h"

namespace rewire::state {

struct Seat {
  MemberId member = 0;
  uint32_t node = 0;
};

// The members of a layout's slots, in the order of slots. A member has at most one slot.
struct SeatedLayout {
  const ParallelLayout* layout = nullptr;
  std::vector<Seat> seats;
};

// The kind of memory from which a member provides elements.
enum class Origin : uint8_t {
  kLive = 0,           // the part in place
  kOwnSnapshot = 1,    // the member's copy of its own slot's part
  kBuddySnapshot = 2,  // the member's copy of the previous slot's part
};

class Sources {
 public:
  // Every member of `from`, which must outlive this, has its part in place.
  explicit Sources(const SeatedLayout& from) : from_(from) {}
  // After a loss. A class of slots that has a survivor with a constant tensor in place gets the
  // tensor from there. Otherwise each slot's copy is a source: its own, or the one that the next
  // slot keeps. Volatile tensors come from copies only, because the interrupted step has changed
  // them in place.
  Sources(const SeatedLayout& from, const RestoreSources& survivors);

  [[nodiscard]] const SeatedLayout& from() const { return from_; }
  [[nodiscard]] bool after_loss() const { return survivors_.has_value(); }

  // The classes of which a slot's member has the chunks.
  struct Held {
    uint32_t own = kNoClass;
    Origin origin = Origin::kLive;  // of `own`
    uint32_t kept = kNoClass;       // by a copy of the previous slot's part
  };
  // Returns what the members have of a tensor, by slot of `from`.
  [[nodiscard]] std::vector<Held> HeldOf(size_t tensor) const;
  // Returns the number of classes.
  [[nodiscard]] uint32_t Classes(size_t tensor) const;
  [[nodiscard]] ClassChunks ChunksOf(size_t tensor) const;
  // Returns whether the tensor is needed at all: a transient one is not restored.
  [[nodiscard]] bool Has(size_t tensor) const;

 private:
  [[nodiscard]] std::vector<bool> InPlace(size_t tensor,
                                          const std::vector<uint32_t>& classes) const;

  const SeatedLayout& from_;
  struct Survivors {
    std::set<MemberId> live, own, buddy;
    bool pieces = false;  // constant tensors are copied
  };
  std::optional<Survivors> survivors_;
};

}  // namespace rewire::state
