// A connection of the net plugin's inside this process, and messages one after the other over it,
// several at a time. What arrives is checked. For one thread, which moves both ends.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/failover/arrivals.h"
#include "net_plugin/core/net.h"

namespace rewire::bench {

class Flow {
 public:
  // Between two of the net's devices.
  static absl::StatusOr<std::unique_ptr<Flow>> Connect(net::Net* net, int from, int to);
  ~Flow();
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Carries messages for as long as `more` says so, which is asked after every message, and then so
  // many. How long each took to come after the one before, in milliseconds. Fails with what the
  // plugin says, or when nothing comes for a minute.
  absl::StatusOr<std::vector<double>> Carry(uint64_t messages,
                                            const std::function<bool()>& more = {});

  [[nodiscard]] const Arrivals& arrivals() const { return arrivals_; }
  // What NCCL would have seen.
  [[nodiscard]] uint64_t errors() const { return errors_; }

 private:
  static constexpr size_t kOutstanding = 8;
  struct Buffer {
    std::vector<char> bytes;
    void* mr = nullptr;
  };
  using Buffers = std::array<Buffer, kOutstanding>;

  Flow(std::unique_ptr<net::Sender> sender, std::unique_ptr<net::Receiver> receiver);
  static absl::Status Register(net::Comm* comm, Buffers* buffers);
  // One look each.
  absl::Status Receive(uint64_t end);
  absl::Status Send(uint64_t end);

  const std::unique_ptr<net::Sender> sender_;
  const std::unique_ptr<net::Receiver> receiver_;
  Buffers out_;
  Buffers in_;
  std::deque<net::Request*> sends_;
  std::deque<net::Request*> receives_;
  uint64_t begun_ = 0;     // sends
  uint64_t posted_ = 0;    // receives
  uint64_t received_ = 0;  // of those
  Arrivals arrivals_;
  uint64_t errors_ = 0;
};

}  // namespace rewire::bench
