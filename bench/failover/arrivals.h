// What arrives against what was sent: messages that carry their number and, at every place, what
// belongs there. For one thread.
#pragma once

#include <cstdint>
#include <span>

namespace rewire::bench {

// Message `number`; in words of 8 bytes.
void FillMessage(uint64_t number, std::span<char> message);

class Arrivals {
 public:
  void Add(std::span<const char> message);
  // All before `end` will not come any more.
  void GiveUp(uint64_t end);

  // The number that is next.
  [[nodiscard]] uint64_t next() const { return next_; }
  [[nodiscard]] uint64_t corrupt() const { return corrupt_; }
  // Also one that comes after a later one: NCCL needs them in order.
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
