// Tokens by the device they are on and the expert they are for: of one iteration of one layer, or
// summed over several. What every re-layout is planned from. A value; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rewire::moe {

class Counts {
 public:
  Counts() = default;
  Counts(uint32_t devices, uint32_t experts)
      : devices_(devices), experts_(experts), tokens_(size_t{devices} * experts) {}

  [[nodiscard]] uint32_t devices() const { return devices_; }
  [[nodiscard]] uint32_t experts() const { return experts_; }
  [[nodiscard]] uint32_t& at(uint32_t device, uint32_t expert) {
    return tokens_[size_t{device} * experts_ + expert];
  }
  [[nodiscard]] uint32_t at(uint32_t device, uint32_t expert) const {
    return tokens_[size_t{device} * experts_ + expert];
  }
  // Row-major: the experts of device 0 first.
  [[nodiscard]] std::span<uint32_t> tokens() { return tokens_; }
  [[nodiscard]] std::span<const uint32_t> tokens() const { return tokens_; }

  // `other` has the same devices and experts. A sum stops at 2^32 - 1, on every rank alike.
  void Add(const Counts& other) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] += std::min(other.tokens_[i], UINT32_MAX - tokens_[i]);
    }
  }

  friend bool operator==(const Counts&, const Counts&) = default;

 private:
  uint32_t devices_ = 0;
  uint32_t experts_ = 0;
  std::vector<uint32_t> tokens_;
};

}  // namespace rewire::moe
