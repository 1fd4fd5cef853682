// A function that can be launched: the kernel of a module, or a C++ kernel of a library
// (extensions.h). Guarded by the driver's lock.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

struct Kernel {
  std::string_view name;
  size_t parameters;  // number of 64-bit parameters
  void (*run)(const uint64_t* arguments);
  // Returns whether the device may use every address that run() touches.
  bool (*may_run)(const uint64_t* arguments, const Device* device);
};

struct Function {
  CUmodule module = nullptr;
  const Kernel* kernel = nullptr;
  // Used instead of a kernel of a module.
  cuSimKernel run = nullptr;
  void* context = nullptr;
};

// The table is never destroyed, like the driver's state.
std::unordered_map<CUfunction, Function>& Functions() REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
