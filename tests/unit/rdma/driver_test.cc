// The verbs driver without a device, and the errors of every driver.
#include "reconfig/rdma/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace rewire::rdma {
namespace {

using ::testing::HasSubstr;

TEST(Verbs, ReportsMissingLibrary) {
  const auto driver = LoadVerbs("libno_such_verbs.so.1");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libno_such_verbs.so.1"));
}

TEST(Verbs, RejectsOtherLibrary) {
  const auto driver = LoadVerbs("libc.so.6");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("ibv_create_qp@IBVERBS_1.1"));
}

TEST(Verbs, ReportsMachineWithoutDevices) {
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

}  // namespace
}  // namespace rewire::rdma
