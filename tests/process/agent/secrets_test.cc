// Files that a job writes under names that others can guess.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

namespace fs = std::filesystem;

std::string BytesOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(SecretsTest, ATraceReplacesALinkOfItsNameAndDoesNotFollowIt) {
  Job job(1, 2);
  const std::string target = job.folder() / "target";
  const std::string trace = job.folder() / "traces/epoch-2.json";
  std::ofstream(target) << "precious";
  fs::create_symlink(target, trace);
  fs::create_symlink(target, trace + ".new");
  EXPECT_EQ(job.Ask("resize", {"2"}).status, 0);
  EXPECT_EQ(job.Finish().status, 0);
  EXPECT_EQ(BytesOf(target), "precious");
  EXPECT_FALSE(fs::is_symlink(trace));
  EXPECT_THAT(BytesOf(trace), ::testing::HasSubstr("traceEvents"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(trace + ".new")));
}

}  // namespace
}  // namespace rewire
