// A table of the ranks of a communicator that have sent to each other, so that a build can connect
// the same pairs on all ranks. Each rank knows to whom it has sent. The first operation of a build
// adds these tables, and all ranks then have the sum. Thread-compatible.
//
// Not in the table: ncclGather and ncclScatter, whose root is not recorded; what a joiner will
// send; and sends since the world has had another size, because ranks were counted by its numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

class SentPairs {
 public:
  // With more ranks the table has one byte and no pairs: it would take more than 128 KiB.
  static constexpr uint32_t kMostRanks = 1024;

  explicit SentPairs(uint32_t ranks);

  // Adds all ranks to which the program has sent as this rank.
  void AddSentBy(const VirtualCommunicator& comm, uint32_t rank);

  // A pair of different ranks.
  [[nodiscard]] bool Has(uint32_t from, uint32_t to) const;
  [[nodiscard]] bool empty() const;
  // Returns the largest number of ranks to which one rank sends, or from which it receives.
  [[nodiscard]] uint32_t MostOfARank() const;
  [[nodiscard]] uint32_t ranks() const { return ranks_; }
  // The table as it is added: one bit for each pair. Two ranks never set the same bit.
  [[nodiscard]] std::vector<uint8_t>& bytes() { return bytes_; }
  [[nodiscard]] const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  const uint32_t ranks_;  // 0: too many
  const size_t row_;      // bytes of one rank
  std::vector<uint8_t> bytes_;
};

}  // namespace rewire::shim
