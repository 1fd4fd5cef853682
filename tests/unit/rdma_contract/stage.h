// Two ends in one process, over one device or two of any driver, for the contract suite.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reconfig/rdma/driver.h"
#include "tests/unit/rdma_contract/end.h"

namespace rewire::rdma {

// What the suite runs on.
struct Ground {
  std::string name;
  // A fresh one for each test.
  std::function<absl::StatusOr<std::unique_ptr<Driver>>()> driver;
  // Left to right; the same name twice is loopback.
  std::string left;
  std::string right;
};
std::ostream& operator<<(std::ostream& out, const Ground& ground);
// Of each program that runs the suite: read once, when GoogleTest starts.
std::vector<Ground> Grounds();
std::string GroundName(const ::testing::TestParamInfo<Ground>& info);

class Contract : public ::testing::TestWithParam<Ground> {
 protected:
  // Queue pairs in RESET.
  void SetUp() override;
  // To RTS, with fresh packet numbers and a timeout of 17 ms.
  void ConnectBoth(uint8_t retries = 7, uint8_t rnr_retries = 7);

  std::unique_ptr<Driver> driver_;
  End left_;
  End right_;
  uint32_t psn_ = 0x123456;
};

}  // namespace rewire::rdma
