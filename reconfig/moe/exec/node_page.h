// Shared memory in which the hosts of a node's processes exchange data for each round (one forward
// or backward of one layer), without messages. Thread-safe, except as noted below.
//
// The agreement of a round is one word of each helper. Owners set the bit of each slot that they
// fill, until the helper closes the word. A late owner finds the word closed and keeps its tokens.
// So a slow process never delays another, and both sides always know the moves.
//
// Each process waits on its own futex (`wakeups`); peers wake the process after a change. A process
// has died if the kernel has released its lock on the file, also across PID namespaces. Rounds are
// even for forward and odd for backward; half of the number increases by one per round.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/moe/exec/node_plan.h"
#include "reconfig/moe/exec/shape.h"

namespace rewire::moe {

class NodePage {
 public:
  // Meets the other processes under the group's name, in /dev/shm, and gives them `memory`. An
  // error names a process that is missing at the deadline, has another shape, or joins twice.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<NodePage>> Join(const NodeGroup& group,
                                                                      const Shape& shape,
                                                                      const CUipcMemHandle& memory,
                                                                      Time deadline);
  ~NodePage();
  NodePage(const NodePage&) = delete;
  NodePage& operator=(const NodePage&) = delete;

  [[nodiscard]] CUipcMemHandle memory(uint32_t rank) const;
  // Marks that this process has passed a stage after joining (1, 2, ..), and waits until all have.
  [[nodiscard]] absl::Status Meet(uint32_t stage, Time deadline);

  // Publishes this process's posting for the round.
  void Post(uint64_t round, const Posting& posting);
  // Reads all postings for the round. False: some are missing, or a process is further already.
  [[nodiscard]] bool Read(uint64_t round, std::vector<Posting>* postings) const;

  // Opens this process's word, after its plan is made: owners can take slots from now on.
  void Open(uint64_t round);
  // Returns whether the helper's word has been opened or closed for the round.
  [[nodiscard]] bool IsAt(uint32_t helper, uint64_t round) const;
  // An owner takes a slot of the helper. False: closed, or the helper is in another round.
  [[nodiscard]] bool Take(uint32_t helper, uint64_t round, uint32_t slot);
  // An owner declines a slot, so that the helper need not wait for the slot.
  void Decline(uint32_t helper, uint64_t round, uint32_t slot);
  // Slots of this process's word: taken or declined so far; taken when the word is closed.
  [[nodiscard]] uint32_t Settled() const;
  [[nodiscard]] uint32_t Close(uint64_t round);

  // Returns the last round in which the helper's slot was taken; 0: never. While the helper's word
  // is open, the result is an earlier round.
  [[nodiscard]] uint64_t LastTaken(uint32_t helper, uint32_t slot) const;
  // Returns the last round in which the process used data that others sent. The value is final once
  // the process has begun the next round.
  [[nodiscard]] uint64_t LastUsed(uint32_t rank) const;

  // Tells the others that this process has failed.
  void Fail();
  // Returns a process that has ended or failed, or nullopt.
  [[nodiscard]] std::optional<uint32_t> FindLost() const;

  [[nodiscard]] uint32_t wakeups() const;
  // Waits until the wake-up counter differs from `seen`, or until the deadline.
  void WaitForWakeup(uint32_t seen, Time deadline) const;
  void WakeOwn();

 private:
  struct Block;
  struct Page;
  NodePage(const NodeGroup& group, UniqueFd file, Page* page);
  [[nodiscard]] absl::Status Enter(const Shape& shape, const CUipcMemHandle& memory);
  // Returns an error if this process cannot balance with the other process.
  [[nodiscard]] absl::Status CheckOther(uint32_t rank) const;
  [[nodiscard]] bool IsAlive(uint32_t rank) const;
  [[nodiscard]] Block& own() const;
  bool Mark(uint32_t helper, uint64_t round, uint64_t bit);
  void Wake(uint32_t rank);
  void WakeAll();

  const NodeGroup group_;
  const UniqueFd file_;
  Page* const page_;
};

}  // namespace rewire::moe
