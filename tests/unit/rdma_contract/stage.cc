#include "tests/unit/rdma_contract/stage.h"

namespace rewire::rdma {

std::ostream& operator<<(std::ostream& out, const Ground& ground) { return out << ground.name; }

std::string GroundName(const ::testing::TestParamInfo<Ground>& info) { return info.param.name; }

void Contract::SetUp() {
  auto driver = GetParam().driver();
  ASSERT_TRUE(driver.ok()) << driver.status();
  driver_ = *std::move(driver);
  ASSERT_NO_FATAL_FAILURE(left_.Open(driver_.get(), GetParam().left));
  ASSERT_NO_FATAL_FAILURE(right_.Open(driver_.get(), GetParam().right));
  ASSERT_NO_FATAL_FAILURE(left_.Make());
  ASSERT_NO_FATAL_FAILURE(right_.Make());
}

void Contract::ConnectBoth(uint8_t retries, uint8_t rnr_retries) {
  psn_ = (psn_ + 0x10101) & 0xffffff;
  Connect(&left_, &right_, psn_, {0, 12, retries, rnr_retries, 1});
}

}  // namespace rewire::rdma
