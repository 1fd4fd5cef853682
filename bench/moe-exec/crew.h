// Processes of one benchmark or test on this machine, forked, with a piece of memory in common in
// which they meet. No process that waits outlives its deadline, whatever becomes of the others.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {

class Crew {
 public:
  static constexpr uint32_t kMost = 16;

  // bytes: of the common memory beside what meeting needs; zeroed.
  Crew(uint32_t ranks, size_t bytes);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // In the parent: forks `ranks` processes that run `body` and exit with what it gives; the exit
  // statuses, 128 + signal for a killed one. Who is not through at the deadline is killed.
  [[nodiscard]] std::vector<int> Run(const std::function<int(uint32_t rank)>& body,
                                     Duration deadline);

  // In a child.
  // The largest of what all bring; false when not all have come in time.
  [[nodiscard]] bool Largest(uint32_t rank, uint64_t mine, uint64_t* largest) const;
  [[nodiscard]] bool Meet(uint32_t rank) const;

  [[nodiscard]] char* memory() const { return memory_; }
  [[nodiscard]] uint32_t ranks() const { return ranks_; }

 private:
  struct Desk;
  const uint32_t ranks_;
  const size_t bytes_;
  char* const mapped_;
  Desk* const desk_;
  char* const memory_;
};

}  // namespace rewire::bench
