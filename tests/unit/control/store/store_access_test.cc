// A store refuses files that another user could read, change or replace (docs/store.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "reconfig/control/store/store.h"

namespace rewire::control {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class StoreAccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/rewire-store-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = name + "/world";
    ASSERT_EQ(Open(), "");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Returns the error text; empty: the store opened.
  [[nodiscard]] std::string Open(RecordLog::Options options = {}) const {
    return std::string(EmbeddedStore::Open(path_, options).status().message());
  }
  // Makes another file and a link to that file at `at`; returns the file's path.
  [[nodiscard]] std::string LinkedTo(const std::string& at) const {
    std::string target = directory_ + "/target";
    std::ofstream(target) << "precious";
    std::filesystem::remove(at);
    std::filesystem::create_symlink(target, at);
    return target;
  }
  static std::string BytesOf(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }

  std::string directory_;
  std::string path_;
};

TEST_F(StoreAccessTest, RejectsFilesThatOthersCanReadOrWrite) {
  for (const std::string& file : {path_, path_ + ".lock"}) {
    for (const mode_t mode : {0640, 0606}) {
      chmod(file.c_str(), mode);
      EXPECT_THAT(Open(), AllOf(HasSubstr(file + ":"), HasSubstr(mode == 0640 ? "0640" : "0606"),
                                HasSubstr("(chmod 600)")));
    }
    chmod(file.c_str(), 0600);
    EXPECT_EQ(Open(), "");
  }
}

TEST_F(StoreAccessTest, RejectsFilesAndFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file to another user";
  for (const std::string& file : {path_, path_ + ".lock", directory_}) {
    ASSERT_EQ(chown(file.c_str(), kNobody, kNobody), 0);
    EXPECT_THAT(Open(), AllOf(HasSubstr(file), HasSubstr("owner=65534")));
    ASSERT_EQ(chown(file.c_str(), geteuid(), getegid()), 0);
    EXPECT_EQ(Open(), "");
  }
}

TEST_F(StoreAccessTest, RejectsFolderThatOthersCanWrite) {
  chmod(directory_.c_str(), 01777);
  EXPECT_THAT(Open(), AllOf(HasSubstr(directory_), HasSubstr("1777"), HasSubstr("chmod go-w")));
  chmod(directory_.c_str(), 0755);
  EXPECT_EQ(Open(), "");
}

TEST_F(StoreAccessTest, FollowsNoSymlink) {
  for (const std::string& name : {path_, path_ + ".lock"}) {
    const std::string target = LinkedTo(name);
    chmod(target.c_str(), 0600);
    EXPECT_THAT(Open(), HasSubstr("Too many levels of symbolic links"));
    EXPECT_EQ(BytesOf(target), "precious");
    std::filesystem::remove(name);
  }
}

TEST_F(StoreAccessTest, ReplacesSymlinkAtTemporaryName) {
  std::filesystem::remove(path_);
  const std::string target = LinkedTo(path_ + ".new");
  EXPECT_EQ(Open(), "");
  EXPECT_EQ(BytesOf(target), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
}

TEST_F(StoreAccessTest, RejectsPipeAsStore) {
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(Open(), "");
}

}  // namespace
}  // namespace rewire::control
