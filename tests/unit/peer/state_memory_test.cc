// State in host and in device memory is copied and hashed with the same result, and freed memory is
// told from the memory that replaces it.
#include "reconfig/state/stream/state_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// Rows of columns: the chunk [2:5, 8:24] of a matrix, and a smaller matrix of these rows alone.
TEST(StateRunsTest, RunsGoFromAnyMemoryToAnyOther) {
  const CUcontext context = UseFirstDevice();
  ASSERT_NE(context, nullptr);
  constexpr uint64_t kRows = 700;
  constexpr uint64_t kColumns = 4001;
  for (const uint64_t width : {uint64_t{1}, uint64_t{16}, uint64_t{2000}}) {
    const Piece wide{Chunk::Whole(std::vector<uint64_t>{kRows, kColumns}), 0, {kColumns, 1}};
    Chunk chunk = wide.chunk;
    chunk.begin[0] = 2;
    chunk.begin[1] = 8;
    chunk.end[1] = 8 + width;
    // The other part begins with 5 other elements, and has 3 more in each row.
    const Piece narrow{chunk, 5, {width + 3, 1}};
    const size_t narrow_bytes = 5 + (kRows - 2) * (width + 3);
    std::vector<char> source(kRows * kColumns);
    for (size_t i = 0; i < source.size(); ++i) source[i] = OwnerByte(i, 7);
    std::vector<char> packed;
    for (uint64_t row = 2; row < kRows; ++row) {
      for (uint64_t c = 0; c < width; ++c) packed.push_back(source[row * kColumns + 8 + c]);
    }
    const Runs from_runs(wide, chunk, 1);
    const Runs to_runs(narrow, chunk, 1);
    ASSERT_EQ(from_runs.bytes(), packed.size());
    StateMemory memory;
    const StatePlace on_device = DeviceMemory(context, source.size());
    ASSERT_TRUE(memory.Write(source.data(), on_device, source.size()).ok());
    const StatePlace here = {MemoryKind::kHost, source.data(), nullptr};
    std::vector<char> target(narrow_bytes);
    const StatePlace there = {MemoryKind::kHost, target.data(), nullptr};
    const StatePlace other_device = DeviceMemory(context, narrow_bytes);
    for (const StatePlace& from : {here, on_device}) {
      for (const StatePlace& to : {there, other_device}) {
        ASSERT_TRUE(memory.Clear(to, narrow_bytes).ok());
        // In two parts, the first of a number of bytes that ends in the middle of a run.
        const uint64_t first = packed.size() / 2 / 8 * 8;
        uint64_t contents[2] = {};
        ASSERT_TRUE(
            memory.CopyHashed({from, from_runs}, {to, to_runs}, 0, first, 0, &contents[0]).ok());
        ASSERT_TRUE(memory
                        .CopyHashed({from, from_runs}, {to, to_runs}, first, packed.size() - first,
                                    first, &contents[1])
                        .ok());
        const uint64_t expected = HashContent(packed.data(), packed.size(), 0);
        EXPECT_EQ(contents[0] + contents[1], expected);
        uint64_t again = 0;
        ASSERT_TRUE(memory.Hash({to, to_runs}, 0, packed.size(), 0, &again).ok());
        EXPECT_EQ(again, expected);
        std::vector<char> got(packed.size());
        ASSERT_TRUE(memory
                        .Visit({to, to_runs}, 0, got.size(),
                               [&](const char* data, size_t at, size_t n) {
                                 std::copy_n(data, n, got.begin() + static_cast<int64_t>(at));
                                 return absl::OkStatus();
                               })
                        .ok());
        EXPECT_EQ(got, packed);
        // The bytes between the runs are as they were.
        std::vector<char> all(narrow_bytes);
        ASSERT_TRUE(memory.Read(to, all.data(), all.size()).ok());
        EXPECT_EQ(std::vector<char>(5), std::vector<char>(all.begin(), all.begin() + 5));
        EXPECT_EQ(std::vector<char>(3), std::vector<char>(all.end() - 3, all.end()));
      }
    }
  }
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
