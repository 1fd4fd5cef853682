// The launcher's parts without a job's processes: lines, environment, paths, folders, children.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "reconfig/control/launcher/child.h"
#include "reconfig/control/launcher/forwarded_pipe.h"
#include "reconfig/control/launcher/install_paths.h"
#include "reconfig/control/launcher/job_directory.h"
#include "reconfig/control/launcher/line_prefix.h"
#include "reconfig/control/launcher/member_environment.h"
#include "reconfig/control/launcher/output.h"

namespace rewire::control {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "/rewire-launcher-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) abort();
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string path;
};

TEST(LinePrefixTest, LinesAreWholeHoweverTheyCome) {
  const std::string text = "one\n\ntwo\nlast";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LinePrefix lines("[x] ");
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) {
      lines.Take(std::string_view(text).substr(at, piece), &out);
      EXPECT_TRUE(out.empty() || out.back() == '\n');
    }
    EXPECT_EQ(out, "[x] one\n[x] \n[x] two\n");
    lines.End(&out);
    lines.End(&out);
    EXPECT_EQ(out, "[x] one\n[x] \n[x] two\n[x] last\n");
  }
}

TEST(LinePrefixTest, AStreamWithoutLineEndsIsBroken) {
  LinePrefix lines("");
  std::string out;
  lines.Take(std::string(2 * LinePrefix::kLongest + 5, 'x'), &out);
  EXPECT_EQ(out.size(), 2 * (LinePrefix::kLongest + 1));
  lines.End(&out);
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), 2 * LinePrefix::kLongest + 5);
}

TEST(MemberEnvironmentTest, ReplacesAndAppends) {
  JobEnvironment job;
  job.net_key = "7";
  job.master_port = 1234;
  job.socket = "/s";
  job.preload = "/lib/p.so";
  job.sim_directory = "/sim";
  job.sim_nccl = "/sim/libnccl.so.2";
  const auto env =
      *MemberEnvironment({"RANK=9", "A=b=c", "LD_PRELOAD=/asan.so", "LD_LIBRARY_PATH=/x",
                          "REWIRE_SOCKET=/outer", "CUDA_VISIBLE_DEVICES=3", "garbage"},
                         job, {5, 2, 3, 4});
  for (const char* line : {"RANK=2", "LOCAL_RANK=3", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4",
                           "GROUP_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234",
                           "REWIRE_MEMBER=5", "REWIRE_NET_KEY=7", "REWIRE_SOCKET=/s", "A=b=c",
                           "LD_PRELOAD=/asan.so:/lib/p.so", "LD_LIBRARY_PATH=/sim:/x:/lib",
                           "CUDA_VISIBLE_DEVICES=3", "REWIRE_NCCL_LIBRARY=/sim/libnccl.so.2"}) {
    EXPECT_EQ(std::count(env.begin(), env.end(), line), 1) << line;
  }
  EXPECT_THAT(env, Not(Contains("RANK=9")));
  // A member that starts another job's members does not accumulate entries.
  const auto again = *MemberEnvironment(env, job, {5, 2, 3, 4});
  EXPECT_EQ(again, env);
}

TEST(MemberEnvironmentTest, WithoutAnAgentNoOtherJobsSocketIsLeft) {
  const auto env = *MemberEnvironment({"REWIRE_SOCKET=/outer"}, {}, {});
  EXPECT_THAT(env, Not(Contains(StartsWith("REWIRE_SOCKET="))));
  EXPECT_THAT(env, Not(Contains(StartsWith("LD_PRELOAD="))));
}

TEST(MemberEnvironmentTest, APathThatLdPreloadCannotHoldIsRefused) {
  JobEnvironment job;
  job.preload = "/with space/p.so";
  EXPECT_THAT(std::string(MemberEnvironment({}, job, {}).status().message()),
              HasSubstr("/with space/p.so"));
}

TEST(InstallPathsTest, BuildTreeAndInstalledTree) {
  Folder tree;
  const std::string exe = tree.path + "/bin/rewire";
  EXPECT_EQ(FindInstallPaths(exe).preload, "");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, "");
  const auto touch = [&](const std::string& name) {
    fs::create_directories(fs::path(tree.path + name).parent_path());
    std::ofstream(tree.path + name) << "x";
  };
  touch("/lib/rewire/librewire-preload.so");
  EXPECT_EQ(FindInstallPaths(exe).preload, tree.path + "/lib/rewire/librewire-preload.so");
  touch("/lib/librewire-preload.so");
  touch("/lib/rewire/simgpu/libnccl.so.2");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, "");  // only half of it exists
  touch("/lib/rewire/simgpu/libcuda.so.1");
  EXPECT_EQ(FindInstallPaths(exe).preload, tree.path + "/lib/librewire-preload.so");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, tree.path + "/lib/rewire/simgpu");
  touch("/simgpu/libnccl.so.2");
  touch("/simgpu/libcuda.so.1");
  EXPECT_EQ(FindInstallPaths(exe).sim_directory, tree.path + "/simgpu");
}

TEST(JobDirectoryTest, MadeAndRemoved) {
  Folder base;
  const std::string runtime = base.path + "/runtime";
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

TEST(JobDirectoryTest, AnExistingFolderIsClosedToOthers) {
  Folder base;
  fs::create_directories(base.path + "/one");
  fs::permissions(base.path + "/one", static_cast<fs::perms>(0755));
  const absl::StatusOr<JobDirectory> job = JobDirectory::Make(base.path, "one");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(fs::status(job->path()).permissions(), fs::perms::owner_all);
}

TEST(JobDirectoryTest, ReplacesOnlyFolderOfKilledLauncher) {
  Folder base;
  fs::create_directories(base.path + "/dead");
  std::ofstream(base.path + "/dead/rewire.lock") << "";
  std::ofstream(base.path + "/dead/agent.sock") << "";
  EXPECT_TRUE(JobDirectory::Make(base.path, "dead").ok());
  fs::create_directories(base.path + "/photos");
  std::ofstream(base.path + "/photos/cat") << "x";
  const auto photos = JobDirectory::Make(base.path, "photos");
  EXPECT_EQ(photos.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fs::exists(base.path + "/photos/cat"));
  EXPECT_TRUE(fs::exists(base.path));
  for (const char* name : {"", "../x", "a/b", ".hidden"}) {
    EXPECT_FALSE(JobDirectory::Make(base.path, name).ok()) << name;
  }
}

TEST(JobDirectoryTest, ARunningJobsNameIsTakenAndOthersAreNot) {
  Folder base;
  const auto first = JobDirectory::Make(base.path, "one");
  ASSERT_TRUE(first.ok()) << first.status();
  std::ofstream(first->store()) << "x";
  EXPECT_THAT(std::string(JobDirectory::Make(base.path, "one").status().message()),
              HasSubstr("a job named 'one' runs already"));
  EXPECT_TRUE(JobDirectory::Make(base.path, "two").ok());
  EXPECT_TRUE(fs::exists(first->store()));
}

TEST(JobDirectoryTest, ARemovalLeavesTheNextJobsFolderAlone) {
  Folder base;
  absl::StatusOr<JobDirectory> first = JobDirectory::Make(base.path, "one");
  ASSERT_TRUE(first.ok());
  fs::rename(first->path(), base.path + "/elsewhere");
  const auto second = JobDirectory::Make(base.path, "one");
  ASSERT_TRUE(second.ok()) << second.status();
  first->Remove();
  EXPECT_TRUE(fs::exists(second->path() + "/rewire.lock"));
}

TEST(JobDirectoryTest, FoldersThatOthersCanChangeAndLinksAreRefused) {
  Folder base;
  fs::create_directories(base.path + "/real");
  fs::create_directory_symlink(base.path + "/real", base.path + "/link");
  const auto refused = [](const absl::StatusOr<JobDirectory>& made) {
    return std::string(made.status().message());
  };
  EXPECT_THAT(refused(JobDirectory::Make(base.path + "/link", "j")), HasSubstr("symbolic link"));
  EXPECT_THAT(refused(JobDirectory::Make(base.path, "link")), HasSubstr("symbolic link"));
  fs::permissions(base.path + "/real", fs::perms::group_write, fs::perm_options::add);
  EXPECT_THAT(refused(JobDirectory::Make(base.path + "/real", "j")), HasSubstr("only its owner"));
  // The launcher does not follow a lock that is a link to another file.
  fs::create_directories(base.path + "/job");
  std::ofstream(base.path + "/other") << "x";
  fs::create_symlink(base.path + "/other", base.path + "/job/rewire.lock");
  EXPECT_FALSE(JobDirectory::Make(base.path, "job").ok());
  EXPECT_THAT(std::string(FindSocket("", base.path + "/link").status().message()),
              HasSubstr("symbolic link"));
  if (geteuid() != 0) return;
  fs::create_directories(base.path + "/foreign");
  ASSERT_EQ(chown((base.path + "/foreign").c_str(), 65534, 65534), 0);
  EXPECT_THAT(refused(JobDirectory::Make(base.path + "/foreign", "j")), HasSubstr("owner=65534"));
}

TEST(ChildTest, RunsAndSaysHowItEnded) {
  ChildSpec spec;
  spec.environment = OwnEnvironment();
  const auto end_of = [&spec](const std::string& script) {
    spec.argv = {"sh", "-c", script};
    const absl::StatusOr<pid_t> pid = StartChild(spec);
    int status = 0;
    if (!pid.ok() || waitpid(*pid, &status, 0) != *pid) return std::string("none");
    return Describe(EndOf(status));
  };
  EXPECT_EQ(end_of("exit 0"), "exited with status 0");
  EXPECT_EQ(end_of("exit 200"), "exited with status 200");
  EXPECT_EQ(end_of("kill -KILL $$"), "was killed by signal 9 (Killed)");
  EXPECT_EQ(end_of("read x || exit 5"), "exited with status 5");  // /dev/null
}

TEST(ChildTest, SignalsAreNeitherBlockedNorIgnored) {
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &old);
  signal(SIGPIPE, SIG_IGN);
  ChildSpec spec;
  spec.environment = OwnEnvironment();
  spec.argv = {"sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status | grep -v 0000000000000000"};
  const absl::StatusOr<pid_t> pid = StartChild(spec);
  ASSERT_TRUE(pid.ok());
  int status = 0;
  ASSERT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(EndOf(status).exit_code, 1);  // the last grep found nothing else
  sigprocmask(SIG_SETMASK, &old, nullptr);
  signal(SIGPIPE, SIG_DFL);
}

TEST(ChildTest, FailedStartNamesProgramAndLeavesNoProcess) {
  ChildSpec spec;
  EXPECT_EQ(StartChild(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec.argv = {"no-such-program"};
  const auto missing = StartChild(spec);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("'no-such-program'"));
  spec.argv = {"/etc"};
  EXPECT_EQ(StartChild(spec).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(OutputTest, DropsOutputOnAFullDiskAndReportsItOnce) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  Output out(full.get());
  for (int i = 0; i < 3; ++i) {
    out.Add("text");
    out.WritePiece();
    EXPECT_FALSE(out.broken());
    EXPECT_FALSE(out.pending());
    EXPECT_EQ(out.TakeError(), i == 0 ? ENOSPC : 0);
  }
}

TEST(OutputTest, NeverWritesMoreThanAPipeTakesAndNoticesItsEnd) {
  signal(SIGPIPE, SIG_IGN);
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  Output out(fds[1]);
  out.Add(std::string(Output::kFull + 10000, 'x'));
  EXPECT_TRUE(out.full());
  out.WritePiece();
  std::string got(2 * Output::kPiece, 0);
  EXPECT_EQ(read(fds[0], got.data(), got.size()), ssize_t{Output::kPiece});
  close(fds[0]);
  out.WritePiece();
  EXPECT_TRUE(out.broken());
  EXPECT_FALSE(out.pending());
  EXPECT_FALSE(out.full());
  close(fds[1]);
  signal(SIGPIPE, SIG_DFL);
}

TEST(ForwardedPipeTest, PutsThePrefixBeforeEachLine) {
  Output to{1};
  UniqueFd child;
  absl::StatusOr<ForwardedPipe> pipe = ForwardedPipe::Make("[x] ", &to, &child);
  ASSERT_TRUE(pipe.ok()) << pipe.status();
  EXPECT_TRUE(pipe->wanted());
  ASSERT_EQ(write(child.get(), "one\ntw", 6), 6);
  pipe->Read();
  EXPECT_EQ(*to.buffer(), "[x] one\n");
  pipe->Read();  // empty: does not block
  ASSERT_EQ(write(child.get(), "o", 1), 1);
  child.reset();
  pipe->ReadToTheEnd();
  EXPECT_EQ(*to.buffer(), "[x] one\n[x] two\n");
  EXPECT_FALSE(pipe->wanted());
}

TEST(ForwardedPipeTest, EndsWhileAnotherProcessHoldsIt) {
  Output to{1};
  UniqueFd child;
  absl::StatusOr<ForwardedPipe> pipe = ForwardedPipe::Make("[x] ", &to, &child);
  ASSERT_TRUE(pipe.ok()) << pipe.status();
  ASSERT_EQ(write(child.get(), "last", 4), 4);
  pipe->ReadToTheEnd();
  EXPECT_EQ(*to.buffer(), "[x] last\n");
  EXPECT_FALSE(pipe->wanted());
}

}  // namespace
}  // namespace rewire::control
