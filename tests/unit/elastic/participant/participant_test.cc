// The participant with a scripted agent: its end, and when its events were sent.
#include "reconfig/elastic/participant/participant.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "reconfig/base/framed_socket.h"
#include "reconfig/base/log.h"
#include "reconfig/elastic/protocol/codec.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire::elastic {
namespace {

constexpr Duration kPatience = seconds(20);

// Communicators whose build ends when the test decides.
class HeldBuild final : public Communicators {
 public:
  std::vector<CommunicatorCounter> Counters() override { return {}; }
  absl::StatusOr<UniqueIdBytes> Mint(const CommunicatorId&) override {
    return UniqueIdBytes(128, 'u');
  }
  void Build(Epoch, std::vector<CommunicatorBuild>, Time,
             std::function<void(absl::Status)> done) override {
    MutexLock lock(&mutex_);
    done_ = std::move(done);
    changed_.NotifyAll();
  }
  std::vector<Position> Positions() override { return {}; }
  std::optional<CutRefusal> Pledge(Epoch, const std::vector<Cut>&) override { return std::nullopt; }
  void Decide(Epoch, bool) override {}
  void SwapNow(Epoch) override {}
  void SwapPending(Epoch) override {}
  void Retire(std::vector<GenerationId>) override {}
  void Abandon(Epoch) override {}
  void AbortCurrent(std::string) override {}
  std::string LostBecause() override { return ""; }
  void ReleaseGraphs() override {}

  std::function<void(absl::Status)> WaitForBuild() {
    const Time deadline = Now() + kPatience;
    MutexLock lock(&mutex_);
    while (!done_ && Now() < deadline) changed_.WaitUntil(&mutex_, deadline);
    return std::move(done_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::function<void(absl::Status)> done_ REWIRE_GUARDED_BY(mutex_);
};

// Large jobs set these deadlines to minutes.
TEST(ParticipantOptionsTest, AMemberWaitsLongerThanItsProgramAndTheLeader) {
  for (const Duration limit : {Duration(milliseconds(100)), Duration(seconds(1200))}) {
    ParticipantOptions options;
    options.build = limit;
    options.boundary = limit;
    EXPECT_GT(options.ForMember().recover, options.LongestRecovery());
    EXPECT_GT(options.ForMember().undecided, options.build + options.boundary);
  }
}

TEST(DetachTest, BuildMayEndAfterDetach) {
  std::string folder = ::testing::TempDir() + "/rewire-detach-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  HeldBuild communicators;
  SetCommunicators(&communicators);
  UniqueFd listener;
  ASSERT_TRUE(ListenUnix(folder + "/s", &listener).ok());
  ParticipantOptions options;
  options.socket = folder + "/s";
  auto participant = Participant::Start(options);
  ASSERT_TRUE(participant.ok()) << participant.status();
  UniqueFd accepted;
  ASSERT_TRUE(Accept(listener.get(), Now() + kPatience, &accepted).ok());
  FramedSocket agent(std::move(accepted));
  std::string frame;
  ASSERT_TRUE(agent.Receive(&frame, Now() + kPatience).ok());
  const auto hello = Decode(frame);
  ASSERT_TRUE(hello.ok() && std::holds_alternative<Hello>(*hello));
  const auto send = [&](const Message& message) {
    ASSERT_TRUE(agent.Send(*Encode(message), Now() + kPatience).ok());
  };
  World world;
  world.epoch = 1;
  world.members.push_back({0, std::get<Hello>(*hello).incarnation, ""});
  World next = world;
  next.epoch = 2;
  send(Welcome{world, false, {}});
  WorldRecord record;
  record.world = world;
  send(Commit{record});
  send(Prepare{2, TransitionKind::kSwap, world, next, {}, 60000, {}});
  CommunicatorBuild build{{}, 1, {0}, {}};
  build.unique_id = UniqueIdBytes(128, 'u');
  send(Build{2, {build}});
  const std::function<void(absl::Status)> done = communicators.WaitForBuild();
  ASSERT_TRUE(done != nullptr);
  participant->reset();
  SetCommunicators(nullptr);
  std::thread builder([&] { done(absl::OkStatus()); });
  builder.join();
  std::filesystem::remove_all(folder);
}

// A participant, and the agent's end of its connection after the Hello.
class ScriptedAgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    UniqueFd listener;
    ASSERT_TRUE(ListenUnix(folder_ / "s", &listener).ok());
    ParticipantOptions options;
    options.socket = folder_ / "s";
    auto participant = Participant::Start(options);
    ASSERT_TRUE(participant.ok()) << participant.status();
    participant_ = *std::move(participant);
    UniqueFd accepted;
    ASSERT_TRUE(Accept(listener.get(), Now() + kPatience, &accepted).ok());
    agent_ = std::make_unique<FramedSocket>(std::move(accepted));
    std::string frame;
    ASSERT_TRUE(agent_->Receive(&frame, Now() + kPatience).ok());
  }
  void Send(const Message& message) {
    ASSERT_TRUE(agent_->Send(*Encode(message), Now() + kPatience).ok());
  }

  const TemporaryFolder folder_;
  decltype(Participant::Start({}))::value_type participant_;
  std::unique_ptr<FramedSocket> agent_;
};

using AttachTest = ScriptedAgentTest;
using AwaitSentTest = ScriptedAgentTest;

TEST_F(AttachTest, FailsWhenTheAgentDoesNotAnswer) {
  const auto entered = participant_->WaitEntered(milliseconds(20));
  EXPECT_EQ(entered.status().code(), absl::StatusCode::kDeadlineExceeded) << entered.status();
}

// The other initial members may take as long as they like.
TEST_F(AttachTest, WaitsForTheFirstWorldOnceTheAgentHasAnswered) {
  static std::atomic<bool> waits{false};
  SetLogSink([](LogLevel, const std::string& line) {
    if (line.find("all initial members have attached: 3 had not") != line.npos) waits = true;
  });
  Send(Forming{3});
  std::thread agent([&] {
    while (!waits) std::this_thread::yield();
    World world;
    world.epoch = 1;
    world.members.push_back({0, 0, ""});
    Send(Welcome{world, false, {}});
    WorldRecord record;
    record.world = world;
    Send(Commit{record});
  });
  // The first calls may come before the member has read the answer.
  auto entered = participant_->WaitEntered(milliseconds(100));
  for (const Time end = Now() + kPatience;
       absl::IsDeadlineExceeded(entered.status()) && Now() < end;) {
    entered = participant_->WaitEntered(milliseconds(100));
  }
  waits = true;  // also after a failure
  agent.join();
  SetLogSink(nullptr);
  ASSERT_TRUE(entered.ok()) << entered.status();
  EXPECT_EQ(entered->world.epoch, 1u);
}

TEST_F(AwaitSentTest, ReturnsAfterEarlierEventsWereSent) {
  ASSERT_TRUE(participant_->WaitConnected(Now() + kPatience).ok());
  constexpr uint64_t kEvents = 20;
  for (uint64_t i = 1; i <= kEvents; ++i) {
    const CommunicatorCreated created{{1, i}, 1, {0}, false, ""};
    participant_->Created(created);
    participant_->Destroyed(created.communicator, 0);
  }
  participant_->AwaitSent(Now() + kPatience);
  uint64_t destroyed = 0;
  std::string frame;
  while (destroyed < kEvents && agent_->Receive(&frame, Now()).ok()) {  // all of them are there
    const auto message = Decode(frame);
    ASSERT_TRUE(message.ok()) << message.status();
    destroyed += std::holds_alternative<CommunicatorDestroyed>(*message) ? 1 : 0;
  }
  EXPECT_EQ(destroyed, kEvents);
}

TEST_F(AwaitSentTest, EndsAtDeadlineOrWithoutAgent) {
  ASSERT_TRUE(participant_->WaitConnected(Now() + kPatience).ok());
  participant_->AwaitSent(Now());
  agent_.reset();
  participant_->Destroyed({1, 1}, 0);
  participant_->AwaitSent(Now() + seconds(1000));
}

}  // namespace
}  // namespace rewire::elastic
