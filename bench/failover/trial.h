// Carries traffic over two rails, between the devices 0, 1 and 2, 3 of tests/rdma_vm's machine,
// while the machine's `fault` disturbs them. For the benchmark and the test. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/failover/flow.h"
#include "net_plugin/plugin/net.h"
#include "reconfig/base/counters.h"

namespace rewire::bench {

class Trial {
 public:
  using Gaps = std::vector<double>;  // milliseconds between messages

  // Opens the net with this process's settings.
  static absl::StatusOr<std::unique_ptr<Trial>> Open();

  absl::StatusOr<Gaps> Carry(uint64_t messages) { return flow_->Carry(messages); }
  // Carries messages while `fault` runs with `words`, and then `messages` more.
  absl::StatusOr<Gaps> Disturb(std::string_view words, uint64_t messages);
  // Like Disturb(), but `messages` more are carried after the fault has made a rail fail.
  absl::StatusOr<Gaps> Break(std::string_view words, uint64_t messages);
  // Carries messages until all failed rails are back; fails after a minute.
  absl::Status AwaitRails();

  [[nodiscard]] const Flow& flow() const { return *flow_; }
  [[nodiscard]] uint64_t rails_failed() const { return ValueOf(Counter::kNetRailsFailed); }

 private:
  explicit Trial(std::unique_ptr<Flow> flow) : flow_(std::move(flow)) {}

  const std::unique_ptr<Flow> flow_;
};

}  // namespace rewire::bench
