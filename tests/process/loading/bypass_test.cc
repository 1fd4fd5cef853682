// Copies of NCCL whose calls do not reach the shim: each is named, once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/process/times.h"
#include "tests/process/loading/loaded_program.h"

namespace rewire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class BypassTest : public ::testing::Test {
 protected:
  // Runs a command as the only member of a job.
  CommandResult RunMember(const std::vector<std::string>& command,
                          const std::vector<std::string>& variables = {}) {
    std::vector<std::string> argv = {
        REWIRE_COMMAND, "run", "-n", "1", ("--sim=" REWIRE_SIMGPU), "--dir", folder_ / "run", "--"};
    argv.insert(argv.end(), command.begin(), command.end());
    return LoadedProgram::Run(variables, argv);
  }

  const TemporaryFolder folder_;
};

TEST_F(BypassTest, SecondCopyThatIsOpenedLaterIsNamedOnce) {
  const CommandResult r =
      LoadedProgram::Run({"LD_PRELOAD=" REWIRE_PRELOAD, "LD_LIBRARY_PATH=" REWIRE_SIMGPU},
                         {CALLER, "1", "open=libnccl.so.2", "also=" NOOP_NCCL});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_EQ(Times(r.err, "two NCCL libraries in one process"), 1U) << r.err;
  EXPECT_THAT(r.err, HasSubstr("calls to " NOOP_NCCL " bypass Rewire"));
}

TEST_F(BypassTest, NcclInTheProgramIsNamedAtTheEnd) {
  const CommandResult r = RunMember({STATIC_CALLER, "1"});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("rank 0 sum"), Not(HasSubstr("virtual"))));
  EXPECT_EQ(Times(r.err, "member 0: no communicator was made through Rewire, but " STATIC_CALLER
                         " has NCCL"),
            1U)
      << r.err;
}

TEST_F(BypassTest, NcclOpenedByItsPathIsNamedAtTheEnd) {
  const CommandResult r = RunMember({CALLER, "1", "open=" REWIRE_SIMGPU "/libnccl.so.2"});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, Not(HasSubstr("virtual")));
  EXPECT_EQ(Times(r.err, "through Rewire, but " REWIRE_SIMGPU "/libnccl.so.2 has NCCL"), 1U)
      << r.err;
}

TEST_F(BypassTest, OtherProcessesSayNothing) {
  const std::string shell = "/bin/true && exec " CALLER " 1 open=libnccl.so.2";
  const CommandResult r = RunMember({"/bin/sh", "-c", shell});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("virtual"));
  EXPECT_THAT(r.err, Not(HasSubstr("through Rewire")));
  const CommandResult off = RunMember({STATIC_CALLER, "1"}, {"REWIRE_DISABLE=1"});
  EXPECT_EQ(off.status, 0) << off.out << off.err;
  EXPECT_THAT(off.err, Not(HasSubstr("through Rewire")));
}

}  // namespace
}  // namespace rewire
