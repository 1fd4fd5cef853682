// Snapshots of registered device memory that the program has freed or reallocated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reconfig/state/snapshot/snapshotter.h"
#include "reconfig/state/stream/state_memory.h"
#include "reconfig/state/stream/tcp_transport.h"
#include "tests/unit/peer/device.h"
#include "tests/unit/state/snapshot/start_world.h"

namespace rewire::state {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kBytes = 1000;

void Free(const StatePlace& place) {
  std::string error;
  EXPECT_EQ(CudaDriver::Get(&error)->MemFree(reinterpret_cast<CUdeviceptr>(place.data)),
            CUDA_SUCCESS);
}

// The world has only this slot, so that each copy stays in this process.
class SnapshotterTest : public ::testing::TestWithParam<Change> {
 protected:
  void SetUp() override {
    context_ = UseFirstDevice();
    ASSERT_NE(context_, nullptr);
    tensor_.place = DeviceMemory(context_, kBytes);
    tensor_.allocation = AllocationOf(tensor_.place);
    ASSERT_NE(tensor_.allocation, 0u);
    auto transport = TcpTransport::Start({});
    ASSERT_TRUE(transport.ok());
    transport_ = std::move(*transport);
    snapshotter_.emplace(transport_.get(), &budget_, Snapshotter::Options{});
    StartWorld(&*snapshotter_, {3, {{0, 0, ""}}}, {{7}}, 0, {tensor_});
  }
  // Returns the status of the copies on the program's thread. The other thread logs its errors.
  absl::Status Copy(uint64_t version) {
    absl::Status status = snapshotter_->BeginVersion(version);
    EXPECT_TRUE(snapshotter_->WaitTaken(Now() + seconds(30)));
    return status;
  }

  CUcontext context_ = nullptr;
  PlacedTensor tensor_ = {{"table", kBytes, 1, Division::kSharded, GetParam()}, {0, kBytes}, {}};
  Budget budget_{uint64_t{1} << 20};
  std::unique_ptr<TcpTransport> transport_;
  std::optional<Snapshotter> snapshotter_;
};

TEST_P(SnapshotterTest, MemoryThatMovedIsNotCopied) {
  ASSERT_TRUE(Copy(5).ok());
  ASSERT_THAT(snapshotter_->OwnVersions(), ElementsAre(5));
  Free(tensor_.place);
  // The new memory mostly has the same address.
  const StatePlace anew = DeviceMemory(context_, kBytes);
  const absl::Status status = Copy(6);
  if (GetParam() == Change::kVolatile) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("tensor table: the registered memory at 0x"));
  }
  EXPECT_THAT(snapshotter_->OwnVersions(), ElementsAre(5));
  Free(anew);
}

INSTANTIATE_TEST_SUITE_P(Changes, SnapshotterTest,
                         ::testing::Values(Change::kConstant, Change::kVolatile));

}  // namespace
}  // namespace rewire::state
