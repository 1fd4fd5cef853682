#include "bench/failover/fault.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "reconfig/base/clock.h"

namespace rewire::bench {
namespace {

// The PATH has a `fault` command that ends as its first argument says.
class FaultTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "fault_test";
    mkdir(folder_.c_str(), 0700);
    const std::string program = folder_ + "/fault";
    std::ofstream(program) << "#!/bin/sh\n[ \"$2\" = plug ] && exit \"$1\"\nexec sleep 1000\n";
    ASSERT_EQ(chmod(program.c_str(), 0700), 0);
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }

  static absl::Status Ended(Fault* fault) {
    const Time deadline = Now() + seconds(30);
    while (fault->Running()) {
      if (Now() > deadline) return absl::DeadlineExceededError("still running");
    }
    return fault->Result();
  }

  std::string folder_;
  std::string path_;
};

TEST_F(FaultTest, ItsResultIsTheProgramsExitCode) {
  Fault works("0 plug");
  EXPECT_TRUE(Ended(&works).ok());
  Fault fails("3 plug");
  EXPECT_EQ(Ended(&fails).code(), absl::StatusCode::kInternal);
}

TEST_F(FaultTest, OneThatIsLetGoOfIsEnded) {
  Fault fault("0 netem");
  EXPECT_TRUE(fault.Running());
}

}  // namespace
}  // namespace rewire::bench
