// The folder of a running job: who may have it, and what a command finds in it.
#include "reconfig/control/launcher/job_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/fakes/process/temporary_folder.h"

namespace rewire::control {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

TEST(JobDirectoryTest, CreatesAndRemovesFolder) {
  TemporaryFolder base;
  const std::string runtime = base.path() + "/runtime";
  std::string path;
  {
    const absl::StatusOr<JobDirectory> job = JobDirectory::Make(runtime, "one");
    ASSERT_TRUE(job.ok()) << job.status();
    path = job->path();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    std::ofstream(job->store()) << "x";
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(runtime));
}

TEST(JobDirectoryTest, MakesExistingFolderPrivate) {
  TemporaryFolder base;
  fs::create_directories(base.path() + "/one");
  fs::permissions(base.path() + "/one", static_cast<fs::perms>(0755));
  const absl::StatusOr<JobDirectory> job = JobDirectory::Make(base.path(), "one");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(fs::status(job->path()).permissions(), fs::perms::owner_all);
}

TEST(JobDirectoryTest, ReplacesOnlyFolderOfKilledLauncher) {
  TemporaryFolder base;
  fs::create_directories(base.path() + "/dead");
  std::ofstream(base.path() + "/dead/rewire.lock") << "";
  std::ofstream(base.path() + "/dead/agent.sock") << "";
  EXPECT_TRUE(JobDirectory::Make(base.path(), "dead").ok());
  fs::create_directories(base.path() + "/photos");
  std::ofstream(base.path() + "/photos/cat") << "x";
  const auto photos = JobDirectory::Make(base.path(), "photos");
  EXPECT_EQ(photos.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fs::exists(base.path() + "/photos/cat"));
  EXPECT_TRUE(fs::exists(base.path()));
  for (const char* name : {"", "../x", "a/b", ".hidden"}) {
    EXPECT_FALSE(JobDirectory::Make(base.path(), name).ok()) << name;
  }
}

TEST(JobDirectoryTest, RejectsNameOfRunningJob) {
  TemporaryFolder base;
  const auto first = JobDirectory::Make(base.path(), "one");
  ASSERT_TRUE(first.ok()) << first.status();
  std::ofstream(first->store()) << "x";
  EXPECT_THAT(std::string(JobDirectory::Make(base.path(), "one").status().message()),
              HasSubstr("a job named 'one' runs already"));
  EXPECT_TRUE(JobDirectory::Make(base.path(), "two").ok());
  EXPECT_TRUE(fs::exists(first->store()));
}

TEST(JobDirectoryTest, RemovalKeepsFolderOfNextJob) {
  TemporaryFolder base;
  absl::StatusOr<JobDirectory> first = JobDirectory::Make(base.path(), "one");
  ASSERT_TRUE(first.ok());
  fs::rename(first->path(), base.path() + "/elsewhere");
  const auto second = JobDirectory::Make(base.path(), "one");
  ASSERT_TRUE(second.ok()) << second.status();
  first->Remove();
  EXPECT_TRUE(fs::exists(second->path() + "/rewire.lock"));
}

TEST(JobDirectoryTest, RejectsSymlinksAndFoldersOfOthers) {
  TemporaryFolder base;
  fs::create_directories(base.path() + "/real");
  fs::create_directory_symlink(base.path() + "/real", base.path() + "/link");
  const auto refused = [](const absl::StatusOr<JobDirectory>& made) {
    return std::string(made.status().message());
  };
  EXPECT_THAT(refused(JobDirectory::Make(base.path() + "/link", "j")), HasSubstr("symbolic link"));
  EXPECT_THAT(refused(JobDirectory::Make(base.path(), "link")), HasSubstr("symbolic link"));
  fs::permissions(base.path() + "/real", fs::perms::group_write, fs::perm_options::add);
  EXPECT_THAT(refused(JobDirectory::Make(base.path() + "/real", "j")), HasSubstr("only its owner"));
  // The launcher does not follow a lock that is a link to another file.
  fs::create_directories(base.path() + "/job");
  std::ofstream(base.path() + "/other") << "x";
  fs::create_symlink(base.path() + "/other", base.path() + "/job/rewire.lock");
  EXPECT_FALSE(JobDirectory::Make(base.path(), "job").ok());
  EXPECT_THAT(std::string(FindSocket("", base.path() + "/link").status().message()),
              HasSubstr("symbolic link"));
  if (geteuid() != 0) return;
  fs::create_directories(base.path() + "/foreign");
  ASSERT_EQ(chown((base.path() + "/foreign").c_str(), 65534, 65534), 0);
  EXPECT_THAT(refused(JobDirectory::Make(base.path() + "/foreign", "j")), HasSubstr("owner=65534"));
}

}  // namespace
}  // namespace rewire::control
