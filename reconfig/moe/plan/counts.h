// Numbers of tokens by the device that has the tokens and the expert that must compute them, and
// the history of these counts. Every re-layout is planned from such counts. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace rewire::moe {

// One object holds one iteration of one layer or a sum of several iterations.
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

// Keeps the counts of a layer's last iterations for planning re-layouts. A single iteration
// predicts the next one poorly. Thread-compatible.
class History {
 public:
  // iterations: number of iterations to keep, at least one. LAER-MoE keeps 5.
  explicit History(size_t iterations) : most_(iterations) {}

  // `counts` must have the same devices and experts as the counts before.
  void Add(Counts counts) {
    kept_.push_back(std::move(counts));
    if (kept_.size() > most_) kept_.pop_front();
  }
  // Returns the kept counts, the oldest first.
  [[nodiscard]] std::vector<Counts> Iterations() const { return {kept_.begin(), kept_.end()}; }

 private:
  const size_t most_;
  std::deque<Counts> kept_;
};

}  // namespace rewire::moe
