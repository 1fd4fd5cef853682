// The state that the program has registered: its tensors, its callbacks, and the memory that it is
// to free. Thread-safe; the callbacks run on the calling thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/mutex.h"
#include "reconfig/elastic/participant/names.h"
#include "reconfig/elastic/participant/new_parts.h"
#include "reconfig/elastic/participant/program_state.h"
#include "rewire/rewire.h"

namespace rewire::elastic {

class RegisteredState {
 public:
  // updates: the number of applied updates, which is transferred like any other state. Must outlive
  // the object.
  explicit RegisteredState(uint64_t* updates) : updates_(updates) {}

  void SetCallbacks(const rewireCallbacks_t& callbacks);
  [[nodiscard]] rewireCallbacks_t callbacks() const;
  void AddTensor(state::PlacedTensor tensor);
  [[nodiscard]] std::vector<state::PlacedTensor> Tensors() const;
  [[nodiscard]] bool HasTensors() const;

  // The program has registered everything: makes the layout of the tensors in its world, and
  // publishes the tensors for a comparison with other members. After a success, later calls do
  // nothing. Fails, naming the tensor, when the program's layout is wrong, or gives `slot` another
  // number of elements than the program has registered. Owned by the program's thread.
  absl::Status SetReady(uint32_t slots, uint32_t slot, Names* names);
  // Returns how a world of `slots` slots is divided. Calls the program's layout callback, unless
  // the layout of the present world has as many.
  [[nodiscard]] absl::StatusOr<state::Parallel> ParallelOf(uint32_t slots);
  // Returns the layout of the present world; nullptr before SetReady().
  [[nodiscard]] SharedLayout layout() const;
  // Waits for SetReady(). Returns nullopt at the deadline.
  [[nodiscard]] std::optional<ProgramState> WaitReady(Time deadline);

  // Fails when registered device memory was freed or allocated again.
  [[nodiscard]] absl::Status CheckAllocations() const;
  // Fails, naming the tensor, when a member of `from` has registered other tensors than `self`. The
  // answer of any earlier member is enough; returns false when none answered. patience: for a
  // member to call its first update. ended: returns true when the wait is useless. Blocks.
  [[nodiscard]] static absl::StatusOr<bool> CheckShapes(const World& from, MemberId self,
                                                        const Names& names, Duration patience,
                                                        const std::function<bool()>& ended);

  // Guards the callbacks that Rewire's own threads call.
  [[nodiscard]] ProgramCalls* calls() { return &calls_; }

  // Places a tensor at its new part and returns the tensor.
  state::PlacedTensor Adopt(const NewPart& part);
  // Call after the parts of a new world were adopted.
  void EnterWorld(SharedLayout layout, uint32_t slot);
  // Notes parts that were allocated in vain, for RunDiscards(). Returns whether any part waits.
  bool Discard(const std::vector<NewPart>& parts);
  // Gives the noted memory back to the program. Owned by the program's thread.
  void RunDiscards();

 private:
  uint64_t* const updates_;
  ProgramCalls calls_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<state::PlacedTensor> tensors_ REWIRE_GUARDED_BY(mutex_);
  rewireCallbacks_t callbacks_ REWIRE_GUARDED_BY(mutex_) = {};
  std::vector<std::pair<std::string, void*>> discards_ REWIRE_GUARDED_BY(mutex_);
  // The layout of the present world, and this member's slot; nullptr before SetReady().
  SharedLayout layout_ REWIRE_GUARDED_BY(mutex_);
  uint32_t slot_ REWIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace rewire::elastic
