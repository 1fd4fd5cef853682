// The choice of MASTER_PORT beside ports that are in use.
#include "reconfig/control/launcher/master_port.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/base/socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {
namespace {

TEST(MasterPortTest, IsNotAnEphemeralPort) {
  for (int i = 0; i < 100; ++i) {
    const auto port = ChooseMasterPort();
    ASSERT_TRUE(port.ok()) << port.status();
    EXPECT_GE(*port, 20000);
    EXPECT_LT(*port, 29500);
  }
}

TEST(MasterPortTest, IsNotAPortThatIsInUse) {
  const auto used = ChooseMasterPort();
  ASSERT_TRUE(used.ok()) << used.status();
  UniqueFd listener;
  std::string bound;
  ASSERT_TRUE(ListenTcp(absl::StrCat("127.0.0.1:", *used), &listener, &bound).ok());
  const auto other = ChooseMasterPort(*used, *used);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(*other, *used);
  EXPECT_GT(*other, 0);
}

}  // namespace
}  // namespace rewire::control
