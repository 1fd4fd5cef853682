// The SIMGPU_* variables (README.md is the table), read once by cuInit. Never changed afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace simgpu {

struct Settings {
  int devices = 8;
  size_t memory_bytes = size_t{4096} << 20;
  int kernel_slots = 0;  // 0: any number
  bool alloc_sync = false;
  // CUDA_DEVICE_MAX_CONNECTIONS=1: one hardware queue, so that operations of all streams begin in
  // the order of their submission.
  bool one_queue = false;
  // What copies take in virtual time; both 0: there is none, and events have the real one.
  uint64_t peer_mbps = 0;
  uint64_t local_mbps = 0;

  [[nodiscard]] bool virtual_clock() const { return peer_mbps != 0 || local_mbps != 0; }
};

// Empty, or what is wrong with which variable.
[[nodiscard]] std::string ReadSettings(char** environment, Settings* settings);

}  // namespace simgpu
