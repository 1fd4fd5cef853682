// Two ends in one process, over one or two devices of any driver, for the contract suite. Owned by
// the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reconfig/rdma/driver.h"
#include "tests/unit/rdma_contract/end.h"

namespace rewire::rdma {

// The devices that the suite runs on.
struct Ground {
  std::string name;
  // Makes a new driver for each test.
  std::function<absl::StatusOr<std::unique_ptr<Driver>>()> driver;
  // Devices of the left and the right end; the same name twice is loopback.
  std::string left;
  std::string right;
};
std::ostream& operator<<(std::ostream& out, const Ground& ground);
// Each program that runs the suite defines this function; GoogleTest calls it once, at its start.
std::vector<Ground> Grounds();
std::string GroundName(const ::testing::TestParamInfo<Ground>& info);

class Contract : public ::testing::TestWithParam<Ground> {
 protected:
  // Makes queue pairs in RESET.
  void SetUp() override;
  // Connects to RTS, with new packet numbers and a timeout of 17 ms.
  void ConnectBoth(uint8_t retries = 7, uint8_t rnr_retries = 7);

  std::unique_ptr<Driver> driver_;
  End left_;
  End right_;
  uint32_t psn_ = 0x123456;
};

}  // namespace rewire::rdma
