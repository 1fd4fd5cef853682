// A page of memory that the processes of a node share: what their hosts tell each other for each
// round (one forward or backward of one layer), without a message and without waiting for one.
//
// A round's agreement is one word of each helper: owners set the bit of each slot that they fill,
// until the helper closes the word; whoever comes late finds it closed and keeps the tokens. So a
// slow process never holds up another, and both sides always know what was moved.
//
// Whoever waits, waits for its bell, which the others ring when they have changed something. A
// process that has died is known by its lock on the file, which the kernel has let go of, whichever
// PID namespaces the processes are in. Any thread, unless said otherwise. A round's number is
// even for a forward one and odd for a backward one, and half of it is one more than the last's.
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
  // Meets the other processes under the group's name, in /dev/shm, and gives them `memory`. Fails
  // by name when one is missing at the deadline, has another shape, or is there twice.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<NodePage>> Join(const NodeGroup& group,
                                                                      const Shape& shape,
                                                                      const CUipcMemHandle& memory,
                                                                      Time deadline);
  ~NodePage();
  NodePage(const NodePage&) = delete;
  NodePage& operator=(const NodePage&) = delete;

  [[nodiscard]] CUipcMemHandle memory(uint32_t rank) const;
  // Says that this process has passed a stage after joining (1, 2, ..), and waits until all have.
  [[nodiscard]] absl::Status Meet(uint32_t stage, Time deadline);

  // Says what this process has for the round.
  void Post(uint64_t round, const Posting& posting);
  // What all have posted for the round; false while some have not, or when one is further already.
  [[nodiscard]] bool Read(uint64_t round, std::vector<Posting>* postings) const;

  // Opens this process's word: from now on slots can be taken, by the plan that it has made, too.
  void Open(uint64_t round);
  // Whether the helper's word has been opened or closed for the round.
  [[nodiscard]] bool IsAt(uint32_t helper, uint64_t round) const;
  // An owner fills a slot of the helper's; false: closed, or the helper is in another round.
  [[nodiscard]] bool Take(uint32_t helper, uint64_t round, uint32_t slot);
  // Says that it will not, so that the helper need not wait for it.
  void Decline(uint32_t helper, uint64_t round, uint32_t slot);
  // Of this process's word: the slots taken so far; taken or declined; taken for good.
  [[nodiscard]] uint32_t Taken() const;
  [[nodiscard]] uint32_t Settled() const;
  [[nodiscard]] uint32_t Close(uint64_t round);

  // The last round in which the slot of the helper's was taken, 0 before; while its word is open
  // that is a round before.
  [[nodiscard]] uint64_t LastTaken(uint32_t helper, uint32_t slot) const;
  // The last round in which the process used what others sent it; for good once it has begun the
  // next.
  [[nodiscard]] uint64_t LastUsed(uint32_t rank) const;

  // Tells the others that this process does not go on.
  void Fail();
  // nullopt: all go on. Otherwise one that has ended or failed.
  [[nodiscard]] std::optional<uint32_t> FindLost() const;

  [[nodiscard]] uint32_t bell() const;
  // Until the bell has been rung since it was `heard`, or the deadline has passed.
  void WaitForBell(uint32_t heard, Time deadline) const;
  void RingOwn();

 private:
  struct Block;
  struct Page;
  NodePage(const NodeGroup& group, UniqueFd file, Page* page);
  [[nodiscard]] absl::Status Enter(const Shape& shape, const CUipcMemHandle& memory);
  // What keeps this process from balancing with another that is there.
  [[nodiscard]] absl::Status CheckOther(uint32_t rank) const;
  [[nodiscard]] bool Lives(uint32_t rank) const;
  [[nodiscard]] Block& own() const;
  bool Mark(uint32_t helper, uint64_t round, uint64_t bit);
  void Ring(uint32_t rank);
  void RingAll();

  const NodeGroup group_;
  const UniqueFd file_;
  Page* const page_;
};

}  // namespace rewire::moe
