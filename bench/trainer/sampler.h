// The training text and the window of each global sample: a hash of (seed, step, index), so that
// data does not depend on the world. Immutable after Open; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::trainer {

class Sampler {
 public:
  // An empty path means the first licence text that Debian always has. The text must be longer than
  // one window.
  static absl::StatusOr<Sampler> Open(const std::string& path, int context, uint64_t seed);

  // Returns context + 1 bytes.
  [[nodiscard]] std::span<const uint8_t> Window(uint64_t step, uint64_t index) const;
  [[nodiscard]] size_t size() const { return text_.size(); }

 private:
  std::vector<uint8_t> text_;
  size_t window_ = 0;
  uint64_t seed_ = 0;
};

}  // namespace rewire::trainer
