// The options of connections over RDMA: deadlines, sizes, and the threads, clock and counters that
// they use; tests replace them. OptionsFromSettings() (net_plugin/plugin) makes the options of a
// process. Plain values, immutable after the connection is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "net_plugin/verbs/background.h"
#include "net_plugin/verbs/rail.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/counters.h"

namespace rewire::net {

// Counters for all connections that share the object.
struct RailCounters {
  Counted failed{Counter::kNetRailsFailed};
  Counted back{Counter::kNetRailsBack};
  Counted fallback{Counter::kNetRailsFallback};
};

struct ConnectionOptions {
  RailOptions rail;
  size_t piece_bytes = 128 << 10;     // piece size, except for small and very large messages
  Duration answer = seconds(300);     // for the peer's first frame, after its program accepts
  Duration join = seconds(5);         // for one attempt
  Duration arrival = seconds(30);     // until an accepted link has joined its first rail
  Duration drain = milliseconds(50);  // for completions of a fenced rail; they come at once
  Duration first_retry = milliseconds(100);
  Duration most_retry = seconds(10);
  // A peer that refuses a request may be exiting: its memory goes before its connections do.
  Duration error_grace = seconds(1);
  Duration device_wait = seconds(30);  // limit for device memory to wait for a rail or for its copy
  // For a receiver that NCCL does not poll. Null: nothing moves such a connection.
  std::function<std::unique_ptr<Watch>(int fd, Watch::Look look)> watch = WatchByWorkers;
  std::function<Time()> now = Now;
  // Runs the creation and joining of queue pairs, and the copies of device memory.
  std::function<void(std::function<void()>)> run = RunInBackground;
  std::function<void(std::function<void()>)> copy = RunCopy;
  std::shared_ptr<RailCounters> counters = std::make_shared<RailCounters>();
  uint64_t seed = 0;  // 0: an unpredictable seed
};

}  // namespace rewire::net
