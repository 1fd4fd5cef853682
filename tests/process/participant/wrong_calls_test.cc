// Invalid calls of the C interface in a member with an agent, or without the agent that it needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reconfig/base/socket.h"
#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(WrongCallsTest, UnderAnAgent) {
  TemporaryFolder folder;
  Background job({REWIRE_COMMAND, "run", "-n", "1", "--no-preload", "--socket",
                  folder / "agent.sock", "--", WRONG_MEMBER, "calls"},
                 {"REWIRE_SILENCE_MS=1000", "REWIRE_HEARTBEAT_MS=20",
                  "REWIRE_CUDA_LIBRARY=/nowhere/libcuda.so.1"});
  const CommandResult end = job.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, Not(HasSubstr("reclaim notice")));
  for (const char* line : {
           "attach: success",
           "id without NCCL: invalid usage: [^\n]*NCCL is not loaded in this process",
           ("device without driver: invalid argument: [^\n]*tensor device: "
            "[^\n]*/nowhere/libcuda.so.1"),
           "host: success",
           "host again: invalid argument: [^\n]*tensor host: already registered",
           "update: success",
           "update inside: invalid usage: rewireUpdate: called inside the update function",
           "recover inside: invalid usage: rewireRecover: called inside the update function",
           "detach inside: invalid usage: rewireDetach: called inside the update function",
           ("update elsewhere: invalid usage: rewireUpdate: another thread is inside "
            "rewireUpdate\\(\\), and a context is owned by one thread"),
           "update with calls: success",
           ("late: invalid usage: [^\n]*tensor late: must be registered before the first "
            "rewireUpdate"),
           "nothing to recover from: unavailable: [^\n]*REWIRE_SILENCE_MS",
           "update after it: success",
           "child attach: invalid usage: [^\n]*forked child",
           "child recover: invalid usage: [^\n]*forked child",
           "child update: invalid usage: [^\n]*forked child",
           "child tensor: invalid usage: [^\n]*forked child",
           "child reclaim: invalid usage: [^\n]*forked child",
           "child graphs: success",
           "child detach: success",
           "update after fork: success",
           "second attach: success",
           "detach: success",
           "second detach: success",
           "update after detach: invalid usage: rewireUpdate: context has been detached",
           "detach again: invalid usage: rewireDetach: context has been detached",
           "attach again: invalid usage: [^\n]*has detached",
       }) {
    EXPECT_THAT(end.out, ContainsRegex(std::string("\\] ") + line));
  }
}

// The mistake must not stay unknown until the first loss.
TEST(WrongCallsTest, RefusesTheFirstUpdateOfMembersWithOtherTensors) {
  TemporaryFolder folder;
  Background job({REWIRE_COMMAND, "run", "-n", "2", "--no-preload", "--socket",
                  folder / "agent.sock", "--", WRONG_MEMBER, "order"});
  const CommandResult end = job.End(seconds(40));
  EXPECT_THAT(end.out, ContainsRegex("first update: invalid argument: [^\n]*tensor [ab] is "
                                     "registered by member [01] differently from member [01]: "
                                     "name=[ab] instead of [ab]"));
}

TEST(WrongCallsTest, NamesTheMemberThatDoesNotRegisterATensor) {
  TemporaryFolder folder;
  Background job({REWIRE_COMMAND, "run", "-n", "2", "--no-preload", "--socket",
                  folder / "agent.sock", "--", WRONG_MEMBER, "extra"});
  const CommandResult end = job.End(seconds(40));
  EXPECT_THAT(end.out, HasSubstr("first update: invalid argument: tensor other is registered by "
                                 "member 1, and member 0 does not register it"));
}

// A sanitizer reports the stack that the thread has unwound.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(WrongCallsTest, ACancelledThreadEndsAfterItsCall) {
  TemporaryFolder folder;
  Background member({WRONG_MEMBER, "cancelled"},
                    {"REWIRE_MEMBER=0", "REWIRE_SOCKET=" + (folder / "absent.sock")});
  const CommandResult end = member.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("attach: timeout, cancelled: 1"));
}
#endif

// A socket without a listener, and a socket whose listener never answers.
TEST(WrongCallsTest, AnAgentThatDoesNotAnswer) {
  TemporaryFolder folder;
  UniqueFd listener;
  ASSERT_TRUE(ListenUnix(folder / "silent.sock", &listener).ok());
  const auto attach = [&](const std::string& name) {
    return Background({WRONG_MEMBER, "attach"},
                      {"REWIRE_MEMBER=0", "REWIRE_SOCKET=" + (folder / name)});
  };
  Background absent = attach("absent.sock");
  Background silent = attach("silent.sock");
  using Attaching = std::pair<Background*, const char*>;
  for (const auto& [member, name] :
       {Attaching(&absent, "absent.sock"), Attaching(&silent, "silent.sock")}) {
    const CommandResult end = member->End(seconds(40));
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_THAT(end.out, HasSubstr("attach: timeout: attach: REWIRE_SOCKET=" + (folder / name) +
                                   ": the agent did not answer"));
  }
}

}  // namespace
}  // namespace rewire
