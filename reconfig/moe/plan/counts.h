// Numbers of tokens by the device that has the tokens and the expert that must compute them. One
// object holds one iteration of one layer or a sum of several iterations. Every re-layout is
// planned from such counts. Thread-compatible.
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

  // `other` has the same devices and experts. A sum saturates at 2^32 - 1, equally on every rank.
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
