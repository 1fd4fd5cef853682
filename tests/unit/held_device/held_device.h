// A simulated device with one hardware queue. No work begins while the device is held. Owned by one
// thread.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/unit/peer/device.h"

namespace rewire {

class HeldDevice {
 public:
  HeldDevice() : context_(state::UseFirstDevice()) {
    std::string error;
    driver_ = CudaDriver::Get(&error);
    EXPECT_NE(context_, nullptr) << error;
    EXPECT_EQ(driver_->StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    using Launch = CUresult (*)(CUstream, void (*)(void*), void*);
    void* const library = dlopen(std::getenv("REWIRE_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    const auto launch = reinterpret_cast<Launch>(dlsym(library, "cuSimLaunchKernel"));
    // The second kernel, and all later work, cannot begin before the first kernel has ended.
    for (int i = 0; i < 2; ++i) EXPECT_EQ(launch(stream_, Spin, &held_), CUDA_SUCCESS);
  }
  ~HeldDevice() { Release(); }
  HeldDevice(const HeldDevice&) = delete;

  // All work ends, including work that was issued while the device was held.
  void Release() {
    held_ = false;
    EXPECT_EQ(driver_->CtxSynchronize(), CUDA_SUCCESS);
  }
  [[nodiscard]] CUcontext context() const { return context_; }

 private:
  static void Spin(void* held) {
    while (static_cast<std::atomic<bool>*>(held)->load()) std::this_thread::yield();
  }

  const CUcontext context_;
  const CudaDriver* driver_ = nullptr;
  CUstream stream_ = nullptr;
  std::atomic<bool> held_ = true;
};

}  // namespace rewire
