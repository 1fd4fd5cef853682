// Compares received with sent messages. A message carries its number and a pattern that depends on
// the number. Thread-compatible.
#pragma once

#include <cstdint>
#include <span>

namespace rewire::bench {

// Writes message `number`, in words of 8 bytes.
void FillMessage(uint64_t number, std::span<char> message);

class Arrivals {
 public:
  void Add(std::span<const char> message);
  // Counts all missing messages before `end` as lost.
  void GiveUp(uint64_t end);

  // Returns the number of the next message.
  [[nodiscard]] uint64_t next() const { return next_; }
  [[nodiscard]] uint64_t corrupt() const { return corrupt_; }
  // Also counts a message that comes after a later message, because NCCL needs them in order.
  [[nodiscard]] uint64_t lost() const { return lost_; }
  [[nodiscard]] uint64_t duplicated() const { return duplicated_; }
  [[nodiscard]] bool flawless() const { return corrupt_ + lost_ + duplicated_ == 0; }

 private:
  uint64_t next_ = 0;
  uint64_t corrupt_ = 0;
  uint64_t lost_ = 0;
  uint64_t duplicated_ = 0;
};

}  // namespace rewire::bench
