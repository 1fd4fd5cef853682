// State on a device that does not finish its work.
#include "reconfig/state/stream/state_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/unit/held_device/held_device.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

TEST(StateMemoryTest, AStuckDeviceIsAnErrorInTime) {
  HeldDevice device;
  const state::StatePlace place = state::DeviceMemory(device.context(), 512);
  std::vector<char> bytes(512);
  std::optional<state::StateMemory> memory(milliseconds(50));
  const absl::Status status = memory->Write(bytes.data(), place, bytes.size());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("copy to device memory of 512 bytes: timed out after 50 ms"));
  // The copy may still use this object's memory: the object accepts no more work, and leaks the
  // memory.
  uint64_t content = 0;
  for (const absl::Status& later :
       {memory->Read(place, bytes.data(), bytes.size()), memory->Clear(place, bytes.size()),
        memory->Hash(place, bytes.size(), 0, &content)}) {
    EXPECT_EQ(later, status);
  }
  memory.reset();
  device.Release();
}

}  // namespace
}  // namespace rewire
