// State in host and in device memory is copied and hashed with the same result, and freed memory is
// told from the memory that replaces it.
#include "reconfig/state/stream/state_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "reconfig/state/stream/content.h"
#include "tests/unit/peer/device.h"

namespace rewire::state {
namespace {

class StateMemoryTest : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    context_ = UseFirstDevice();
    ASSERT_NE(context_, nullptr);
    bytes_.resize(GetParam());
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = OwnerByte(i, 4);
    device_ = DeviceMemory(context_, bytes_.size() + 64);
    other_ = DeviceMemory(context_, bytes_.size() + 64);
  }
  StatePlace Host() { return {MemoryKind::kHost, bytes_.data(), nullptr}; }

  CUcontext context_ = nullptr;
  std::vector<char> bytes_;
  StatePlace device_;
  StatePlace other_;
  StateMemory memory_;
};

TEST_P(StateMemoryTest, DeviceHashEqualsHostHash) {
  constexpr uint64_t kOffset = uint64_t{8} * 1234567;
  const uint64_t expected = HashContent(bytes_.data(), bytes_.size(), kOffset);
  for (const uint64_t shift : {0, 2, 8, 13}) {
    const StatePlace place = device_.At(shift);
    ASSERT_TRUE(memory_.Write(bytes_.data(), place, bytes_.size()).ok());
    uint64_t content = 0;
    ASSERT_TRUE(memory_.Hash(place, bytes_.size(), kOffset, &content).ok());
    EXPECT_EQ(content, expected) << shift;
  }
  uint64_t content = 0;
  ASSERT_TRUE(memory_.Hash(Host(), bytes_.size(), kOffset, &content).ok());
  EXPECT_EQ(content, expected);
}

TEST_P(StateMemoryTest, CopiesAndHashesBetweenHostAndDevice) {
  const uint64_t expected = HashContent(bytes_.data(), bytes_.size(), 0);
  std::vector<char> back(bytes_.size());
  const StatePlace end = {MemoryKind::kHost, back.data(), nullptr};
  const std::pair<StatePlace, StatePlace> ways[] = {
      {Host(), device_}, {device_, other_.At(3)}, {other_.At(3), end}};
  for (const auto& [from, to] : ways) {
    uint64_t content = 0;
    ASSERT_TRUE(memory_.CopyHashed(from, to, bytes_.size(), 0, &content).ok());
    EXPECT_EQ(content, expected);
  }
  EXPECT_EQ(back, bytes_);
}

TEST_P(StateMemoryTest, ClearedMemoryIsZero) {
  ASSERT_TRUE(memory_.Write(bytes_.data(), device_, bytes_.size()).ok());
  ASSERT_TRUE(memory_.Clear(device_, bytes_.size()).ok());
  std::vector<char> back(bytes_.size(), 1);
  ASSERT_TRUE(memory_.Read(device_, back.data(), back.size()).ok());
  EXPECT_EQ(back, std::vector<char>(bytes_.size()));
}

// Sizes: one byte, a tail, exactly a piece, pieces with a tail.
INSTANTIATE_TEST_SUITE_P(Sizes, StateMemoryTest,
                         ::testing::Values(1, 61, 1 << 20, (2 << 20) + 12345));

TEST(AllocationTest, FreedOrReallocatedMemoryHasAnotherNumber) {
  const CUcontext context = UseFirstDevice();
  ASSERT_NE(context, nullptr);
  std::string error;
  const CudaDriver& driver = *CudaDriver::Get(&error);
  CUdeviceptr memory = 0;
  ASSERT_EQ(driver.MemAlloc(&memory, 1 << 20), CUDA_SUCCESS);
  const StatePlace place = {MemoryKind::kDevice, reinterpret_cast<char*>(memory), context};
  const uint64_t first = AllocationOf(place);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(AllocationOf(place), first);
  EXPECT_EQ(AllocationOf(place.At(4096)), first);
  ASSERT_EQ(driver.MemFree(memory), CUDA_SUCCESS);
  EXPECT_NE(AllocationOf(place), first);
  // The result is the same whether or not the driver returns the same address.
  ASSERT_EQ(driver.MemAlloc(&memory, 1 << 20), CUDA_SUCCESS);
  EXPECT_NE(AllocationOf(place), first);
}

TEST(AllocationTest, HostMemoryHasNoNumber) {
  char byte = 0;
  EXPECT_EQ(AllocationOf({MemoryKind::kHost, &byte, nullptr}), 0u);
}

TEST(AllocationTest, KeepsTheThreadsContext) {
  const CUcontext context = UseFirstDevice();
  const StatePlace place = DeviceMemory(context, 1000);
  std::string error;
  const CudaDriver& driver = *CudaDriver::Get(&error);
  ASSERT_EQ(driver.CtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_NE(AllocationOf(place), 0u);
  CUcontext now = context;
  EXPECT_EQ(driver.CtxGetCurrent(&now), CUDA_SUCCESS);
  EXPECT_EQ(now, nullptr);
}

}  // namespace
}  // namespace rewire::state
