// The place of the world record. The commit of a transition is one compare-and-swap here.
//
// One implementation is a file (embedded_store.h); a replicated one fits behind the same interface,
// so answers may come later: each callback is called exactly once, from inside the call or from
// Progress(). One thread: the agent's owner thread.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "reconfig/transition/world.h"

namespace rewire {

// What a compare-and-swap came to.
struct SwapOutcome {
  bool swapped = false;
  // The record that stands now. Not swapped: the one that was in the way, if any.
  std::optional<WorldRecord> current;
};

class Store {
 public:
  // A status that is not ok means that nothing is known: the answer of a compare-and-swap is then
  // "perhaps", and a later Read(), or the same compare-and-swap again, tells.
  using ReadDone = std::function<void(absl::StatusOr<std::optional<WorldRecord>>)>;
  using SwapDone = std::function<void(absl::StatusOr<SwapOutcome>)>;

  virtual ~Store() = default;

  // The record; nothing when none was ever written.
  virtual void Read(ReadDone done) = 0;
  // Puts the record in when the revision that stands is `expected` (0: no record), and the record's
  // own is above it: revisions and epochs never go back. Answered only when the record would
  // survive this process's death.
  virtual void CompareAndSwap(uint64_t expected, const WorldRecord& record, SwapDone done) = 0;

  // A descriptor that is readable when Progress() has something to do; -1: never.
  [[nodiscard]] virtual int fd() const { return -1; }
  virtual void Progress() {}
};

}  // namespace rewire
