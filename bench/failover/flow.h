// Sends messages over one connection of the net plugin, with both ends in this process, and checks
// that they arrive complete and in order. Several messages are in flight. Used by Trial.
// Thread-compatible: the calling thread polls both ends.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/failover/arrivals.h"
#include "net_plugin/plugin/net.h"

namespace rewire::bench {

class Flow {
 public:
  // Connects device `from` of `net` to device `to`. `net` must outlive the flow.
  static absl::StatusOr<std::unique_ptr<Flow>> Connect(net::Net* net, int from, int to);
  ~Flow();
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Carries messages while `more` returns true, then `messages` further messages; `more` is called
  // after every message. Returns the time between successive messages in milliseconds. Fails with
  // the plugin's error, or if no message arrives for a minute.
  absl::StatusOr<std::vector<double>> Carry(uint64_t messages,
                                            const std::function<bool()>& more = {});

  [[nodiscard]] const Arrivals& arrivals() const { return arrivals_; }
  // Returns the number of errors that NCCL would have seen.
  [[nodiscard]] uint64_t errors() const { return errors_; }

 private:
  static constexpr size_t kOutstanding = 8;  // most posted requests of each end
  struct Buffer {
    std::vector<char> bytes;
    void* mr = nullptr;
  };
  using Buffers = std::array<Buffer, kOutstanding>;

  Flow(std::unique_ptr<net::Sender> sender, std::unique_ptr<net::Receiver> receiver);
  static absl::Status Register(net::Comm* comm, Buffers* buffers);
  // Each call posts at most one request and polls once. end: number of messages from the beginning
  // after which no request is posted.
  absl::Status Receive(uint64_t end);
  absl::Status Send(uint64_t end);

  const std::unique_ptr<net::Sender> sender_;
  const std::unique_ptr<net::Receiver> receiver_;
  Buffers out_;
  Buffers in_;
  std::deque<net::Request*> sends_;
  std::deque<net::Request*> receives_;
  uint64_t begun_ = 0;     // number of sends
  uint64_t posted_ = 0;    // number of receives
  uint64_t received_ = 0;  // number of completed receives
  Arrivals arrivals_;
  uint64_t errors_ = 0;
};

}  // namespace rewire::bench
