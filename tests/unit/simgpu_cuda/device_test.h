// The fixture of the simulated driver's tests: two devices of 64 MiB with two kernel slots each,
// and device 0's primary context current. A gate holds a stream until the test opens the gate.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "reconfig/base/mutex.h"
#include "tests/unit/simgpu_cuda/entries.h"

namespace simgpu_test {

class DeviceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("SIMGPU_DEVICES", "2", 1);
    ::setenv("SIMGPU_MEMORY_MB", "64", 1);
    ::setenv("SIMGPU_KERNEL_SLOTS", "2", 1);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  void SetUp() override {
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  }

  static CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }
  static CUevent NewEvent(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    CUevent event = nullptr;
    EXPECT_EQ(cuEventCreate(&event, flags), CUDA_SUCCESS);
    return event;
  }
  static CUdeviceptr NewMemory(size_t size) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc_v2(&memory, size), CUDA_SUCCESS);
    return memory;
  }

  CUcontext context_ = nullptr;
};

class Gate {
 public:
  ~Gate() { Open(); }
  void Open() {
    rewire::MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  // Returns false if the gate was not opened in time.
  bool Wait() {
    const rewire::Time deadline = rewire::Now() + rewire::seconds(30);
    rewire::MutexLock lock(&mutex_);
    ++arrived_;
    changed_.NotifyAll();
    while (!open_) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    return true;
  }
  // Waits until `count` have reached the gate. Returns false after the timeout.
  bool WaitForArrivals(int count, rewire::Duration patience = rewire::seconds(30)) {
    const rewire::Time deadline = rewire::Now() + patience;
    rewire::MutexLock lock(&mutex_);
    while (arrived_ < count) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    return true;
  }
  int arrived() {
    rewire::MutexLock lock(&mutex_);
    return arrived_;
  }
  // For cuLaunchHostFunc and cuSimLaunchKernel.
  static void Hold(void* gate) { static_cast<Gate*>(gate)->Wait(); }

 private:
  rewire::Mutex mutex_;
  rewire::CondVar changed_;
  bool open_ REWIRE_GUARDED_BY(mutex_) = false;
  int arrived_ REWIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace simgpu_test
