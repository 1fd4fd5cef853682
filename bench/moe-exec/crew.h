// Forks the processes of one benchmark or test on this machine, with common memory in which they
// synchronise. No wait exceeds its deadline, even if processes die. Thread-compatible.
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

  // bytes: size of the zeroed common memory, beside the memory for synchronisation.
  Crew(uint32_t ranks, size_t bytes);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // In the parent: forks `ranks` processes that run `body` and exit with its result. Returns exit
  // statuses, 128 + signal for a killed process. Kills processes that still run at the deadline.
  [[nodiscard]] std::vector<int> Run(const std::function<int(uint32_t rank)>& body,
                                     Duration deadline);

  // In a child; false if a process did not call in time. Largest() gives the ranks' largest value.
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
