// Threads that are cancelled inside an NCCL call end as they do with NCCL alone.
#include <tuple>

#include "tests/process/preload/preload_fixture.h"

namespace rewire::shim {
namespace {

using ::testing::HasSubstr;

class CancelledTest : public PreloadTest,
                      public ::testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    if (*REWIRE_RUNTIME != 0) GTEST_SKIP() << "sanitizers do not follow a cancelled thread";
  }
};

TEST_P(CancelledTest, EndsAsWithNcclAlone) {
  const auto [function, call] = GetParam();
  const std::string command =
      std::string(REWIRE_CANCELLED " " REWIRE_REAL " ") + function + " " + call;
  const std::string library = "REWIRE_NCCL_LIBRARY=" REWIRE_REAL " ";
  for (const std::string& environment :
       {std::string(), preload_ + library, preload_ + library + "REWIRE_DISABLE=1 "}) {
    const Ran ran = RunCommand(environment, command);
    EXPECT_EQ(0, ran.status) << environment << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("cancelled 1\nused again")) << environment;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CancelledTest,
    ::testing::Values(std::tuple("AllReduce", "reduce"), std::tuple("AllReduce", "group"),
                      std::tuple("GroupEnd", "group"), std::tuple("CommInitRank", "init"),
                      std::tuple("CommSplit", "split"), std::tuple("CommRegister", "register"),
                      std::tuple("CommGetAsyncError", "error"),
                      std::tuple("AllReduce", "foreign")));

}  // namespace
}  // namespace rewire::shim
