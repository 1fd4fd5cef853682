// Stores the world record. The commit of a transition is one compare-and-swap in the store.
//
// The present implementation is a file (embedded_store.h). The interface also permits a replicated
// store, whose answers come later: each callback is called exactly once, inside the call or from
// Progress(). Owned by the agent's thread.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "reconfig/world/world.h"

namespace rewire::control {

// The result of a compare-and-swap.
struct SwapOutcome {
  bool swapped = false;
  // The record in the store now. When not swapped: the record that differed, if any.
  std::optional<WorldRecord> current;
};

class Store {
 public:
  // An error means that the result is unknown. A compare-and-swap may then have happened; a later
  // Read(), or the same compare-and-swap again, determines the result.
  using ReadDone = std::function<void(absl::StatusOr<std::optional<WorldRecord>>)>;
  using SwapDone = std::function<void(absl::StatusOr<SwapOutcome>)>;

  virtual ~Store() = default;

  // Reads the record; nullopt when none was ever written.
  virtual void Read(ReadDone done) = 0;
  // Stores the record when the stored revision is `expected` (0: no record) and the record's own
  // revision is higher. Revisions and epochs never decrease. Reports a swap only when the record
  // would survive the death of this process.
  virtual void CompareAndSwap(uint64_t expected, const WorldRecord& record, SwapDone done) = 0;

  // Returns a descriptor that is readable when Progress() has work to do; -1: never.
  [[nodiscard]] virtual int fd() const { return -1; }
  virtual void Progress() {}
};

}  // namespace rewire::control
