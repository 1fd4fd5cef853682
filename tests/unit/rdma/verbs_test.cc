#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "reconfig/rdma/verbs_driver.h"

namespace rewire::rdma {
namespace {

using ::testing::HasSubstr;

TEST(Verbs, MissingLibraryIsAStatus) {
  const auto driver = LoadVerbs("libno_such_verbs.so.1");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libno_such_verbs.so.1"));
}

TEST(Verbs, RejectsOtherLibrary) {
  const auto driver = LoadVerbs("libc.so.6");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("ibv_create_qp@IBVERBS_1.1"));
}

TEST(Verbs, MachineWithoutDevicesIsAStatus) {
  const auto driver = LoadVerbs();
  ASSERT_TRUE(driver.ok()) << driver.status();
  const auto devices = (*driver)->Devices();
  if (devices.ok()) GTEST_SKIP() << "this machine has RDMA devices";
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kNotFound) << devices.status();
  EXPECT_EQ((*driver)->Open("mlx5_0").status().code(), absl::StatusCode::kNotFound);
}

TEST(Verbs, ErrorsNameCallDeviceAndNumber) {
  const absl::Status status = CallError("ibv_create_qp", "mlx5_0", ENOMEM);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "ibv_create_qp on mlx5_0: Cannot allocate memory (errno 12)");
  EXPECT_EQ(CallError("x", "y", EOPNOTSUPP).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CallError("x", "y", EIO).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CallError("x", "y", EINVAL).code(), absl::StatusCode::kInvalidArgument);
}

TEST(LinkSpeed, WidthTimesSpeed) {
  EXPECT_EQ(LinkSpeedMbps(2, 32), 100'000U);   // 4x EDR
  EXPECT_EQ(LinkSpeedMbps(2, 128), 400'000U);  // 4x NDR
  EXPECT_EQ(LinkSpeedMbps(1, 1), 2500U);
  EXPECT_EQ(LinkSpeedMbps(16, 64), 100'000U);
  EXPECT_EQ(LinkSpeedMbps(2, 3), 0U);
  EXPECT_EQ(LinkSpeedMbps(0, 32), 0U);
}

}  // namespace
}  // namespace rewire::rdma
