// The variables of a member's process, and the files beside the executable.
#include "reconfig/control/launcher/member_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/fakes/process/temporary_folder.h"

namespace rewire::control {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

namespace fs = std::filesystem;

TEST(MemberEnvironmentTest, ReplacesVariablesAndAppendsPaths) {
  JobEnvironment job;
  job.net_key = "7";
  job.master_port = 1234;
  job.socket = "/s";
  job.preload = "/lib/p.so";
  job.sim_directory = "/sim";
  job.sim_nccl = "/sim/libnccl.so.2";
  job.python = "/python";
  const auto env = *MemberEnvironment(
      {"RANK=9", "A=b=c", "LD_PRELOAD=/asan.so", "LD_LIBRARY_PATH=/x", "REWIRE_SOCKET=/outer",
       "CUDA_VISIBLE_DEVICES=3", "PYTHONPATH=/own", "garbage"},
      job, {5, 2, 3, 4});
  for (const char* line :
       {"RANK=2", "LOCAL_RANK=3", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=0",
        "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234", "REWIRE_MEMBER=5", "REWIRE_NET_KEY=7",
        "REWIRE_SOCKET=/s", "A=b=c", "LD_PRELOAD=/asan.so:/lib/p.so",
        "LD_LIBRARY_PATH=/sim:/x:/lib", "CUDA_VISIBLE_DEVICES=3",
        "REWIRE_NCCL_LIBRARY=/sim/libnccl.so.2", "PYTHONPATH=/own:/python"}) {
    EXPECT_EQ(std::count(env.begin(), env.end(), line), 1) << line;
  }
  EXPECT_THAT(env, Not(Contains("RANK=9")));
  // A member that starts another job's members does not accumulate entries.
  const auto again = *MemberEnvironment(env, job, {5, 2, 3, 4});
  EXPECT_EQ(again, env);
}

TEST(MemberEnvironmentTest, RemovesSocketOfAnotherJobWithoutAgent) {
  const auto env = *MemberEnvironment({"REWIRE_SOCKET=/outer"}, {}, {});
  EXPECT_THAT(env, Not(Contains(StartsWith("REWIRE_SOCKET="))));
  EXPECT_THAT(env, Not(Contains(StartsWith("LD_PRELOAD="))));
}

TEST(MemberEnvironmentTest, RejectsPathThatLdPreloadCannotHold) {
  JobEnvironment job;
  job.preload = "/with space/p.so";
  EXPECT_THAT(std::string(MemberEnvironment({}, job, {}).status().message()),
              HasSubstr("/with space/p.so"));
}

TEST(InstallPathsTest, FindsFilesOfBuildTreeAndInstallation) {
  TemporaryFolder tree;
  const std::string exe = tree.path() + "/bin/rewire";
  EXPECT_EQ(FindInstallPaths(exe).preload, "");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, "");
  const auto touch = [&](const std::string& name) {
    fs::create_directories(fs::path(tree.path() + name).parent_path());
    std::ofstream(tree.path() + name) << "x";
  };
  touch("/lib/rewire/librewire-preload.so");
  EXPECT_EQ(FindInstallPaths(exe).preload, tree.path() + "/lib/rewire/librewire-preload.so");
  touch("/lib/librewire-preload.so");
  touch("/lib/rewire/simgpu/libnccl.so.2");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, "");  // only half of it exists
  touch("/lib/rewire/simgpu/libcuda.so.1");
  EXPECT_EQ(FindInstallPaths(exe).preload, tree.path() + "/lib/librewire-preload.so");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, tree.path() + "/lib/rewire/simgpu");
  touch("/simgpu/libnccl.so.2");
  touch("/simgpu/libcuda.so.1");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, tree.path() + "/simgpu");
  EXPECT_EQ(FindInstallPaths(exe).python, "");
  touch("/share/rewire/python/rewire/__init__.py");
  EXPECT_EQ(FindInstallPaths(exe).python, tree.path() + "/share/rewire/python");
}

TEST(InstallPathsTest, DoesNotGiveTheSitePackagesOfAWheel) {
  TemporaryFolder site;
  fs::create_directories(site.path() + "/rewire");
  std::ofstream(site.path() + "/rewire/__init__.py") << "x";
  EXPECT_EQ(FindInstallPaths(site.path() + "/rewire/bin/rewire").python, "");
}

}  // namespace
}  // namespace rewire::control
