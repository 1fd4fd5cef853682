// Memory that grows and shrinks in place, on the simulated device.
#include "bench/trainer/part_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rewire::trainer {
namespace {

constexpr uint64_t kGranule = 2 << 20;
constexpr uint64_t kBytes = 16 * kGranule;

class PartMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
    ASSERT_TRUE(PartMemory::SupportedBy(*device_));
    free_ = Free();
    auto memory = PartMemory::Create(*device_, kBytes, 4 * kGranule, 8 * kGranule);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = std::move(*memory);
  }
  size_t Free() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(device_->driver().MemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  uint64_t Used() { return (free_ - Free()) / kGranule; }
  // Fills bytes [begin, end) with `value`.
  void Put(uint64_t begin, uint64_t end, char value) {
    const std::vector<char> bytes(end - begin, value);
    ASSERT_TRUE(device_->CopyIn(memory_->at(begin), bytes.data(), bytes.size()).ok());
    ASSERT_TRUE(device_->Synchronize().ok());
  }
  bool Holds(uint64_t begin, uint64_t end, char value) {
    std::vector<char> bytes(end - begin);
    EXPECT_TRUE(device_->CopyOut(bytes.data(), memory_->at(begin), bytes.size()).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    return std::all_of(bytes.begin(), bytes.end(), [&](char b) { return b == value; });
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<PartMemory> memory_;
  size_t free_ = 0;
};

TEST_F(PartMemoryTest, IsZeroAtFirstAndGivenBackAtLast) {
  EXPECT_EQ(Used(), 4u);
  EXPECT_TRUE(Holds(4 * kGranule, 8 * kGranule, 0));
  memory_.reset();
  EXPECT_EQ(Used(), 0u);
}

TEST_F(PartMemoryTest, GrowsAndShrinksAroundWhatItHolds) {
  Put(4 * kGranule, 8 * kGranule, 'a');
  ASSERT_TRUE(memory_->Reach(3 * kGranule + 5, 9 * kGranule + 5));
  EXPECT_EQ(Used(), 7u);
  Put(8 * kGranule, 9 * kGranule + 5, 'b');
  memory_->Adopt(3 * kGranule + 5, 9 * kGranule + 5);
  memory_->Trim();
  EXPECT_EQ(Used(), 7u);
  EXPECT_TRUE(Holds(4 * kGranule, 8 * kGranule, 'a'));
  EXPECT_TRUE(Holds(8 * kGranule, 9 * kGranule + 5, 'b'));
  ASSERT_TRUE(memory_->Reach(5 * kGranule, 6 * kGranule));
  memory_->Adopt(5 * kGranule, 6 * kGranule);
  memory_->Trim();
  EXPECT_EQ(Used(), 1u);
  EXPECT_TRUE(Holds(5 * kGranule, 6 * kGranule, 'a'));
}

TEST_F(PartMemoryTest, KeepsWhatTheNextChangeReachedForWhileTheLastIsDropped) {
  ASSERT_TRUE(memory_->Reach(0, 8 * kGranule));
  ASSERT_TRUE(memory_->Reach(4 * kGranule, 12 * kGranule));
  memory_->Drop();
  Put(8 * kGranule, 12 * kGranule, 'c');
  memory_->Adopt(4 * kGranule, 12 * kGranule);
  memory_->Trim();
  EXPECT_EQ(Used(), 8u);
  EXPECT_TRUE(Holds(8 * kGranule, 12 * kGranule, 'c'));
}

TEST_F(PartMemoryTest, APartMayBecomeEmptyAndComeBack) {
  ASSERT_TRUE(memory_->Reach(8 * kGranule + 5, 8 * kGranule + 5));
  memory_->Adopt(8 * kGranule + 5, 8 * kGranule + 5);
  memory_->Trim();
  EXPECT_EQ(Used(), 0u);
  ASSERT_TRUE(memory_->Reach(0, kGranule));
  Put(0, kGranule, 'd');
}

TEST_F(PartMemoryTest, WhatTheDeviceHasNoRoomForIsGivenBack) {
  const auto rest = DeviceBuffer::Allocate(*device_, Free() - 4 * kGranule);
  ASSERT_TRUE(rest.ok()) << rest.status();
  const size_t free = Free();
  EXPECT_LT(free, 8 * kGranule);
  EXPECT_FALSE(memory_->Reach(4 * kGranule, kBytes));
  EXPECT_EQ(Free(), free);
  EXPECT_TRUE(Holds(4 * kGranule, 8 * kGranule, 0));
}

}  // namespace
}  // namespace rewire::trainer
