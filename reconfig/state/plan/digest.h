// A hash of a sequence of numbers and texts that every member computes alike. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "reconfig/base/hash.h"

namespace rewire::state {

class Digest {
 public:
  void Add(uint64_t number) { sum_ += ContentWord(number, count_++); }
  void Add(const std::string& text) {
    Add(text.size());
    Add(ContentHash(text.data(), text.size(), 0));
  }
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0;
  uint64_t count_ = 0;
};

}  // namespace rewire::state
