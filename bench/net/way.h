// A way to carry bytes between the two processes of the benchmark. Both processes have an object of
// the same class and make the same calls in the same order; one leads. Thread-compatible.
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
  // The leader sends `count` messages, up to kDepth at a time; returns after all have arrived.
  virtual absl::Status Stream(size_t bytes, size_t count) = 0;
  // The leader sends a message and its peer returns it, `count` times. Returns each round trip.
  virtual absl::StatusOr<std::vector<Duration>> PingPong(size_t bytes, size_t count) = 0;
};

// Messages and buffers at a time, like NCCL's steps.
inline constexpr size_t kDepth = 8;

struct RawTcpOptions {
  int streams = 1;
  // Ping-pong polls instead of waiting in the kernel.
  bool spin = false;
  // SO_SNDBUF in bytes; 0: the kernel's default.
  int send_buffer = 0;
};
// TCP connections, each with a thread on both sides; ping-pong uses the first connection.
absl::StatusOr<std::unique_ptr<Way>> RawTcp(const Control& control, const RawTcpOptions& options);
// Options of this side's plugin.
struct PluginEnd {
  int device = 0;
  // An idle receiver of a stream sleeps instead of polling.
  bool naps = false;
};
// Opens the plugin at `path` and uses its functions of ABI v11.
absl::StatusOr<std::unique_ptr<Way>> ThroughPlugin(const Control& control, const std::string& path,
                                                   const PluginEnd& end);

}  // namespace rewire::bench
