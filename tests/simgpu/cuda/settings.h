// The SIMGPU_* variables (README.md has the table). cuInit reads them once; they never change
// afterwards. Thread-safe after cuInit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace simgpu {

struct Settings {
  int devices = 8;
  size_t memory_bytes = size_t{4096} << 20;
  int kernel_slots = 0;  // 0: unlimited
  bool alloc_sync = false;
  // CUDA_DEVICE_MAX_CONNECTIONS=1: one hardware queue, so that operations of all streams begin in
  // the order of their submission.
  bool one_queue = false;
  // Virtual speed of copies. If both are 0, there is no virtual time, and events use real time.
  uint64_t peer_mbps = 0;
  uint64_t local_mbps = 0;

  [[nodiscard]] bool virtual_clock() const { return peer_mbps != 0 || local_mbps != 0; }
};

// Returns an empty string, or the variable and its error.
[[nodiscard]] std::string ReadSettings(char** environment, Settings* settings);

}  // namespace simgpu
