// Peers that die at every message of a stream, on either side, by an orderly end and by a reset.
// Acknowledged fragments stay acknowledged. Every other fragment fails exactly once, with an error
// that names the peer. Other streams are not affected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "reconfig/base/mutex.h"
#include "reconfig/state/stream/content.h"
#include "reconfig/state/stream/tcp_transport.h"
#include "tests/fakes/process/full_listener.h"
#include "tests/unit/state/stream/scripted_receiver.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

const StreamHello kHello{Purpose::kTransition, 2, 1, 2, 0, 0, {}};
constexpr size_t kBytes = 300'000;  // more than one write takes

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Records the status with which each sent fragment ended. Thread-safe.
class Endings {
 public:
  std::function<void(absl::Status)> Of(int fragment) {
    return [this, fragment](absl::Status status) {
      MutexLock lock(&mutex_);
      EXPECT_EQ(ended_.count(fragment), 0u) << "fragment " << fragment << " is done twice";
      ended_[fragment] = std::move(status);
      changed_.NotifyAll();
    };
  }
  // False: fewer than `count` fragments have ended within kStreamPatience.
  bool Wait(size_t count) {
    const Time deadline = Now() + kStreamPatience;
    MutexLock lock(&mutex_);
    while (ended_.size() < count) {
      if (!changed_.WaitUntil(&mutex_, deadline) && ended_.size() < count) return false;
    }
    return true;
  }
  [[nodiscard]] std::map<int, absl::Status> all() const {
    MutexLock lock(&mutex_);
    return ended_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<int, absl::Status> ended_ REWIRE_GUARDED_BY(mutex_);
};

class PeerDeath : public ::testing::Test {
 protected:
  std::unique_ptr<TcpTransport> Sender(Duration connect) {
    TcpOptions options;
    options.member = 1;
    options.connect = connect;
    auto started = TcpTransport::Start(options);
    EXPECT_TRUE(started.ok()) << started.status();
    return *std::move(started);
  }
  void Send(TcpTransport* from, MemberId to, const std::string& address, int fragment,
            Endings* endings) {
    OutFragment out;
    out.header.tensor = 1;
    out.header.bytes = kBytes;
    out.header.offset = static_cast<uint64_t>(fragment) * kBytes;
    out.header.content = HashContent(bytes_.data(), kBytes, out.header.offset);
    out.bytes = bytes_;
    from->Send(kStreamKey, {to, 0, address}, out, endings->Of(fragment));
  }

  const size_t descriptors_ = OpenDescriptors();
  const std::vector<char> bytes_ = Numbers(kBytes);
};

class ReceiverDeath : public PeerDeath,
                      public ::testing::WithParamInterface<std::tuple<int, bool>> {};

TEST_P(ReceiverDeath, FailsFragmentsThatWereNotPlaced) {
  const auto until = Until(std::get<0>(GetParam()));
  const bool never_open = until < Until::kOpen;
  const bool reset = std::get<1>(GetParam());
  const int answered = until < Until::kPlaced ? 0 : until < Until::kSecondPlaced ? 1 : 2;
  {
    ScriptedReceiver dying(until, reset);
    ScriptedReceiver healthy(Until::kEnd);
    // The sender retries a receiver that does not accept the stream until this time has passed.
    const auto from = Sender(never_open ? milliseconds(100) : kStreamPatience);
    Endings of_dying;
    Endings of_healthy;
    for (int f = 0; f < 3; ++f) {
      Send(from.get(), 2, dying.address(), f, &of_dying);
      Send(from.get(), 3, healthy.address(), f, &of_healthy);
    }
    ASSERT_TRUE(of_dying.Wait(3));
    // A reset may lose answers in flight, but the answers that arrive are always the first ones.
    int placed = 0;
    for (const auto& [fragment, status] : of_dying.all()) {
      if (status.ok()) {
        EXPECT_EQ(fragment, placed++);
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << fragment << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("member 2"));
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(never_open ? "not established in time" : "stream to member 2 at "));
    }
    EXPECT_LE(placed, answered);
    if (!reset) {
      EXPECT_EQ(placed, answered);
    }
    // A failed stream stays failed.
    Send(from.get(), 2, dying.address(), 3, &of_dying);
    ASSERT_TRUE(of_dying.Wait(4));
    EXPECT_EQ(of_dying.all().at(3), of_dying.all().at(2));
    // The other receiver of the same sender has all fragments.
    ASSERT_TRUE(of_healthy.Wait(3));
    for (const auto& [fragment, status] : of_healthy.all()) EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(from->counters().bytes_out, static_cast<uint64_t>(placed + 3) * kBytes);
    from->Close(kStreamKey);
  }
  EXPECT_EQ(OpenDescriptors(), descriptors_);
}

INSTANTIATE_TEST_SUITE_P(AtEveryMessage, ReceiverDeath,
                         ::testing::Combine(::testing::Range(0, static_cast<int>(Until::kEnd)),
                                            ::testing::Bool()));

// A receiver's death before it accepts the stream loses nothing: the sender retries.
TEST_F(PeerDeath, BeforeStreamIsOpenCausesOnlyDelay) {
  for (const Until until :
       {Until::kAccept, Until::kHello, Until::kHalfChallenge, Until::kProof, Until::kHalfAnswer}) {
    for (const bool reset : {false, true}) {
      ScriptedReceiver receiver(until, reset);
      receiver.LiveFrom(3);
      const auto from = Sender(kStreamPatience);
      Endings endings;
      for (int f = 0; f < 3; ++f) Send(from.get(), 2, receiver.address(), f, &endings);
      ASSERT_TRUE(endings.Wait(3));
      for (const auto& [fragment, status] : endings.all()) EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// The kernel would repeat the request of one connection after 1, 3 and 7 s only.
TEST_F(PeerDeath, AsksReceiverUnderFloodAgain) {
  FullListener receiver;
  Endings endings;
  const auto from = Sender(kStreamPatience);
  Send(from.get(), 2, receiver.address(), 0, &endings);
  EXPECT_TRUE(receiver.WaitForAttempts(3));
  UniqueFd connection = receiver.Drain();
  char hello[kStreamHelloSize];
  EXPECT_TRUE(ReceiveAll(connection.get(), hello, sizeof hello, Now() + kStreamPatience).ok());
}

TEST_F(PeerDeath, RejectsMalformedReplies) {
  const struct {
    std::string answer;
    absl::StatusCode code;
    const char* named;
  } kAnswers[] = {
      {EncodeReply(Reply::kRejected), absl::StatusCode::kDataLoss,
       "the member rejected a fragment"},
      {EncodeReply(Reply::kAccepted), absl::StatusCode::kDataLoss, "a reply arrived out of order"},
      {std::string(kReplySize, 'z'), absl::StatusCode::kUnavailable, "malformed reply"},
      // Two answers at once: the second answers a fragment that the receiver cannot have seen.
      {EncodeReply(Reply::kPlaced) + EncodeReply(Reply::kPlaced), absl::StatusCode::kDataLoss,
       "a reply arrived out of order"},
  };
  for (const auto& a : kAnswers) {
    ScriptedReceiver receiver(Until::kEnd, false, a.answer);
    const auto from = Sender(kStreamPatience);
    Endings endings;
    Send(from.get(), 2, receiver.address(), 0, &endings);
    ASSERT_TRUE(endings.Wait(1));
    absl::Status last = endings.all().at(0);
    if (last.ok()) {
      Send(from.get(), 2, receiver.address(), 1, &endings);
      ASSERT_TRUE(endings.Wait(2));
      last = endings.all().at(1);
    }
    EXPECT_EQ(last.code(), a.code) << last;
    EXPECT_THAT(std::string(last.message()), HasSubstr(a.named));
    EXPECT_THAT(std::string(last.message()), HasSubstr("member 2"));
    from->Close(kStreamKey);
  }
}

// Counts the fragments that a receiver passes to its sink.
class CountingSink final : public FragmentSink {
 public:
  absl::Status Take(MemberId sender, const FragmentHeader& header,
                    std::span<const char> bytes) override {
    EXPECT_EQ(sender, 1u);
    EXPECT_EQ(HashContent(bytes.data(), bytes.size(), header.offset), header.content);
    ++taken;
    return absl::OkStatus();
  }
  void Corrupted(MemberId, const FragmentHeader&) override { ADD_FAILURE() << "corrupted"; }
  std::atomic<int> taken{0};
};

class SenderDeath : public PeerDeath {
 protected:
  // Returns the messages that a sender sends, in order.
  std::vector<std::string> Messages() {
    FragmentHeader header;
    header.epoch = kStreamKey.epoch;
    header.bytes = kBytes;
    header.content = HashContent(bytes_.data(), kBytes, 0);
    const std::string body(bytes_.data(), kBytes);
    return {
        EncodeStreamHello(kHello),
        std::string(kStreamProofSize, 'p'),  // ProofFor() replaces the proof after the challenge
        EncodeHeader(header),
        body,
        EncodeHeader(header),
        body};
  }
};

TEST_F(SenderDeath, GivesTheSinkWholeFragmentsOnly) {
  {
    TcpOptions options;
    options.member = 2;
    auto to = TcpTransport::Start(options);
    ASSERT_TRUE(to.ok()) << to.status();
    CountingSink sink;
    (*to)->Open(kStreamKey, {{1, 0, ""}}, &sink);
    const std::vector<std::string> messages = Messages();
    int whole = 0;
    for (const bool reset : {false, true}) {
      for (size_t last = 0; last < messages.size(); ++last) {
        for (const size_t part : {size_t{0}, messages[last].size() / 2, messages[last].size()}) {
          UniqueFd fd;
          ASSERT_TRUE(ConnectTcp((*to)->address(), Now() + kStreamPatience, &fd).ok());
          std::string answers(kStreamChallengeSize, '\0');
          // The sender waits for every answer except the last, and dies without reading the last.
          for (size_t m = 0; m <= last; ++m) {
            const std::string whole_message = m == 1 ? ProofFor(messages[0], answers) : messages[m];
            const std::string said = whole_message.substr(0, m == last ? part : std::string::npos);
            ASSERT_TRUE(SendAll(fd.get(), said, Now() + kStreamPatience).ok());
            if (m == last || m == 2 || m == 4) continue;
            const size_t answer = m == 0 ? kStreamChallengeSize : kReplySize;
            ASSERT_TRUE(ReceiveAll(fd.get(), answers.data(), answer, Now() + kStreamPatience).ok());
            if (m == 3) ++whole;
          }
          if (reset) {
            // A reset may lose bytes in flight.
            ResetConnection(&fd);
          } else if (part == messages[last].size() && (last == 3 || last == 5)) {
            ++whole;
          }
        }
      }
    }
    // A healthy sender succeeds after all of them.
    UniqueFd fd;
    ASSERT_TRUE(ConnectTcp((*to)->address(), Now() + kStreamPatience, &fd).ok());
    ASSERT_TRUE(SendAll(fd.get(), messages[0], Now() + kStreamPatience).ok());
    std::string challenge(kStreamChallengeSize, '\0');
    ASSERT_TRUE(
        ReceiveAll(fd.get(), challenge.data(), challenge.size(), Now() + kStreamPatience).ok());
    const std::string rest = ProofFor(messages[0], challenge) + messages[2] + messages[3];
    ASSERT_TRUE(SendAll(fd.get(), rest, Now() + kStreamPatience).ok());
    char answers[2 * kReplySize];
    ASSERT_TRUE(ReceiveAll(fd.get(), answers, sizeof answers, Now() + kStreamPatience).ok());
    EXPECT_EQ(DecodeReply({answers + kReplySize, kReplySize}).value(), Reply::kPlaced);
    ++whole;
    fd.reset();
    // At most two fragments sent before a reset may also have arrived: those with last 3 and 5.
    const Time deadline = Now() + kStreamPatience;
    while (sink.taken < whole && Now() < deadline) std::this_thread::yield();
    (*to)->Close(kStreamKey);
    EXPECT_GE(sink.taken, whole);
    EXPECT_LE(sink.taken, whole + 2);
    const TransportCounters counters = (*to)->counters();
    EXPECT_EQ(counters.bytes_in, static_cast<uint64_t>(sink.taken) * kBytes);
    EXPECT_EQ(counters.corrupted, 0u);
    EXPECT_EQ(counters.dropped_garbage, 0u);
    EXPECT_EQ(counters.dropped_stale, 0u);
  }
  EXPECT_EQ(OpenDescriptors(), descriptors_);
}

}  // namespace
}  // namespace rewire::state
