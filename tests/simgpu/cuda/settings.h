// The SIMGPU_* variables (README.md is the table), read once by cuInit. Never changed afterwards.
#pragma once

#include <cstddef>
#include <string>

namespace simgpu {

struct Settings {
  int devices = 8;
  size_t memory_bytes = size_t{4096} << 20;
  int kernel_slots = 0;  // 0: any number
  bool alloc_sync = false;
};

// Empty, or what is wrong with which variable.
[[nodiscard]] std::string ReadSettings(char** environment, Settings* settings);

}  // namespace simgpu
