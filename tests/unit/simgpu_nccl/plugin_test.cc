// The plugin loader. It reads its variables once per process, so each case is a separate process.

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/unit/simgpu_nccl/world.h"

namespace simnccl {
namespace {

// Runs one test of this program with more variables; returns whether it passed.
bool Passes(const std::string& test, std::vector<std::string> variables) {
  for (char** v = environ; *v != nullptr; ++v) {
    if (std::strncmp(*v, "GTEST_", 6) != 0) variables.emplace_back(*v);
  }
  variables.emplace_back("SIMNCCL_CASE=1");
  std::vector<char*> env;
  for (std::string& v : variables) env.push_back(v.data());
  env.push_back(nullptr);
  std::string filter = "--gtest_filter=PluginCase." + test;
  char self[] = "/proc/self/exe";
  char* argv[] = {self, filter.data(), nullptr};
  pid_t pid = 0;
  if (::posix_spawn(&pid, self, nullptr, nullptr, argv, env.data()) != 0) return false;
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

const std::string kPlugin = std::string("NCCL_NET_PLUGIN=") + SIMNCCL_FAKE_PLUGIN;

void Cycle(ncclResult_t init, ncclResult_t reduce) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  OnThreads(2, [&](int r) {
    Rank gpu(r);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(init, ncclCommInitRank(&comm, 2, id, r)) << ncclGetLastError(nullptr);
    if (init != ncclSuccess) return;
    int64_t* data = gpu.Put<int64_t>({r + 1});
    ASSERT_EQ(reduce, ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()));
    if (reduce == ncclSuccess) {
      ASSERT_TRUE(gpu.Sync());
      EXPECT_EQ(3, *data);
    }
    ASSERT_NCCL(ncclCommDestroy(comm));
  });
}

// Test cases that Passes runs; an ordinary run skips them.
#define ONLY_AS_CASE() \
  if (std::getenv("SIMNCCL_CASE") == nullptr) GTEST_SKIP() << "run by the tests of Plugin"

TEST(PluginCase, Works) {
  ONLY_AS_CASE();
  Cycle(ncclSuccess, ncclSuccess);
}
TEST(PluginCase, WorksTwice) {
  ONLY_AS_CASE();
  Cycle(ncclSuccess, ncclSuccess);
  Cycle(ncclSuccess, ncclSuccess);
}
TEST(PluginCase, IsLostAtTheSecondInit) {
  ONLY_AS_CASE();
  Cycle(ncclSuccess, ncclSuccess);
  Cycle(ncclInvalidUsage, ncclSuccess);
}
TEST(PluginCase, IsRefused) {
  ONLY_AS_CASE();
  Cycle(ncclInvalidUsage, ncclSuccess);
}
TEST(PluginCase, FailsTheCollective) {
  ONLY_AS_CASE();
  Cycle(ncclSuccess, ncclInternalError);
}

TEST(Plugin, TheNewestAcceptedVersionIsUsed) {
  EXPECT_TRUE(Passes("Works", {kPlugin, "NCCL_NET=fakev11"}));
  EXPECT_TRUE(Passes("IsRefused", {kPlugin, "NCCL_NET=FakeV8"}));
  // 2.22 accepts at most v8; 2.19 accepts none of our versions.
  EXPECT_TRUE(Passes("Works", {kPlugin, "NCCL_NET=FakeV8", "SIMNCCL_VERSION=22203"}));
  EXPECT_TRUE(Passes("IsRefused", {kPlugin, "NCCL_NET=FakeV8", "SIMNCCL_VERSION=21903"}));
}

TEST(Plugin, NamesAndFallBack) {
  EXPECT_TRUE(Passes("Works", {"NCCL_NET_PLUGIN=/nowhere.so"}));
  EXPECT_TRUE(Passes("Works", {"NCCL_NET_PLUGIN=none", "NCCL_NET=socket"}));
  EXPECT_TRUE(Passes("IsRefused", {"NCCL_NET_PLUGIN=none", "NCCL_NET=IB"}));
  EXPECT_TRUE(
      Passes("Works", {"NCCL_NET_PLUGIN=/nowhere.so," + kPlugin.substr(16), "NCCL_NET=FakeV11"}));
}

TEST(Plugin, IsForgottenAfterTheLastDestroyUnlessHeld) {
  EXPECT_TRUE(Passes("IsLostAtTheSecondInit", {kPlugin, "NCCL_NET=FakeV11"}));
  EXPECT_TRUE(Passes("WorksTwice", {kPlugin, "NCCL_NET=FakeV11", "NCCL_NET_PLUGIN_REF_COUNT=1"}));
  EXPECT_TRUE(Passes("WorksTwice", {kPlugin, "NCCL_NET=FakeV8", "SIMNCCL_VERSION=22203"}));
}

TEST(Plugin, TunersAreAskedAndTheirErrorsFail) {
  const std::string tuner = std::string("NCCL_TUNER_PLUGIN=") + SIMNCCL_FAKE_PLUGIN;
  EXPECT_TRUE(Passes("Works", {tuner}));
  EXPECT_TRUE(Passes("FailsTheCollective", {tuner, "FAKE_TUNER=error"}));
  // The tuner is in the network plugin's library. It is not used if it is disabled or its version
  // is too new.
  EXPECT_TRUE(Passes("FailsTheCollective", {kPlugin, "FAKE_TUNER=error"}));
  EXPECT_TRUE(Passes("Works", {kPlugin, "FAKE_TUNER=error", "NCCL_TUNER_PLUGIN=none"}));
  EXPECT_TRUE(Passes("Works", {tuner, "FAKE_TUNER=error", "SIMNCCL_VERSION=22203"}));
}

TEST(Plugin, WrongVariablesAreErrors) {
  EXPECT_TRUE(Passes("IsRefused", {"SIMNCCL_VERSION=2.28.9"}));
  EXPECT_TRUE(Passes("IsRefused", {"NCCL_BUFFSIZE=12"}));
  EXPECT_TRUE(Passes("IsRefused", {"NCCL_NET_PLUGIN_REF_COUNT=yes"}));
  EXPECT_TRUE(Passes("IsRefused", {"NCCL_COMM_BLOCKING=2"}));
}

}  // namespace
}  // namespace simnccl
