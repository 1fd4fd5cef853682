// One way to carry bytes between the two processes of the benchmark. Both have an object of the
// same class and call the same functions in the same order; one leads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/net/control.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {

class Way {
 public:
  virtual ~Way() = default;
  // The leader sends `count` messages of `bytes`, several at a time; returns when all have come.
  virtual absl::Status Stream(size_t bytes, size_t count) = 0;
  // The leader sends one, the other sends it back, `count` times; how long each of these took.
  virtual absl::StatusOr<std::vector<Duration>> PingPong(size_t bytes, size_t count) = 0;
};

// Messages and buffers at a time, as NCCL has steps.
inline constexpr size_t kDepth = 8;

struct RawTcpOptions {
  int streams = 1;
  // Ping-pong asks again and again instead of waiting in the kernel.
  bool spin = false;
  // Bytes; 0: as the kernel likes.
  int send_buffer = 0;
};
// TCP connections, each with a thread on either side; ping-pong on the first.
absl::StatusOr<std::unique_ptr<Way>> RawTcp(const Control& control, const RawTcpOptions& options);
// This side's end of a way through the plugin.
struct PluginEnd {
  int device = 0;
  // Who receives a stream and has nothing to do sleeps, instead of asking again and again.
  bool naps = false;
};
// Through the plugin's functions of ABI v11.
absl::StatusOr<std::unique_ptr<Way>> ThroughPlugin(const Control& control, const std::string& path,
                                                   const PluginEnd& end);

}  // namespace rewire::bench
