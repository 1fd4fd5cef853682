// Tests the owner and mode of a job key's file, and files that another user put at the key's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "reconfig/control/store/store.h"

namespace rewire::control {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class JobKeyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/rewire-key-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ + "/world.secret";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::string path_;
};

TEST_F(JobKeyTest, CreatesKeyOnceReadableByOwnerOnly) {
  const absl::StatusOr<Key> key = JobKey(path_);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(*JobKey(path_), *key);
  struct stat st {};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600);
}

TEST_F(JobKeyTest, RejectsFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file to another user";
  ASSERT_TRUE(JobKey(path_).ok());
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(std::string(JobKey(path_).status().message()),
              AllOf(HasSubstr(path_), HasSubstr("owner=65534"), HasSubstr("mode=0600")));
}

TEST_F(JobKeyTest, ReplacesSymlinkAtTemporaryName) {
  const std::string target = folder_ + "/target";
  std::ofstream(target) << "precious";
  std::filesystem::create_symlink(target, path_ + ".new");
  ASSERT_TRUE(JobKey(path_).ok());
  EXPECT_EQ(std::filesystem::file_size(target), 8u);
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
}

}  // namespace
}  // namespace rewire::control
