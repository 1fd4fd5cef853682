// A sender and a receiver over several streams, where workers and NCCL's thread meet.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "net_plugin/socket/links.h"
#include "net_plugin/socket/socket_receiver.h"
#include "net_plugin/socket/socket_sender.h"
#include "tests/unit/net_plugin/proxy.h"

namespace rewire::net {
namespace {

using net_test::Pattern;
using net_test::Soon;

class StreamsTest : public ::testing::TestWithParam<int> {
 protected:
  void Join() {
    sockaddr_storage loopback{};
    auto& in = reinterpret_cast<sockaddr_in&>(loopback);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    absl::StatusOr<ListenAddress> address = there_.Listen(loopback);
    ASSERT_TRUE(address.ok());
    std::unique_ptr<Link> out;
    std::unique_ptr<Link> in_link;
    const Time deadline = Soon();
    while ((out == nullptr || in_link == nullptr) && Now() < deadline) {
      if (out == nullptr) out = *here_.Connect(loopback, GetParam(), &*address);
      if (in_link == nullptr) in_link = *there_.Accept(address->listener);
    }
    ASSERT_TRUE(out != nullptr && in_link != nullptr);
    sender_ = std::make_unique<SocketSender>(std::move(out), &here_);
    receiver_ = std::make_unique<SocketReceiver>(std::move(in_link), &there_);
  }
  Request* Send(const std::vector<char>& bytes) {
    const absl::StatusOr<Request*> r = sender_->Isend(bytes.data(), bytes.size(), 0, nullptr);
    EXPECT_TRUE(r.ok()) << r.status();
    return r.ok() ? *r : nullptr;
  }
  Request* Receive(std::vector<char>* into) {
    void* data = into->data();
    const size_t bytes = into->size();
    const int tag = 0;
    void* mr = nullptr;
    const absl::StatusOr<Request*> r = receiver_->Irecv(1, &data, &bytes, &tag, &mr);
    EXPECT_TRUE(r.ok()) << r.status();
    return r.ok() ? *r : nullptr;
  }
  absl::Status Wait(Comm* comm, Request* request) {
    const Time deadline = Soon();
    while (Now() < deadline) {
      const absl::StatusOr<bool> through = comm->Test(request, nullptr);
      if (!through.ok()) return through.status();
      if (*through) return absl::OkStatus();
      std::this_thread::yield();
    }
    return absl::DeadlineExceededError("the message does not come");
  }

  Links here_{{}};
  Links there_{{}};
  std::unique_ptr<SocketSender> sender_;
  std::unique_ptr<SocketReceiver> receiver_;
};

// What is left of a message on a further stream may be read ahead of its place.
TEST_P(StreamsTest, ReceivesThatComeLateFindWhatWasReadAhead) {
  ASSERT_NO_FATAL_FAILURE(Join());
  const size_t bytes = 2 * kChunkBytes + 1000;
  constexpr int kAhead = 8;
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<char>> sent;
    std::vector<Request*> sends;
    for (int i = 0; i < kAhead; ++i) sent.push_back(Pattern(bytes, round * kAhead + i + 1));
    for (const auto& s : sent) sends.push_back(Send(s));
    for (int i = 0; i < kAhead; ++i) {
      std::vector<char> got(bytes);
      Request* const receive = Receive(&got);
      const Time deadline = Soon();
      for (;;) {
        for (Request*& s : sends) {
          if (s != nullptr && *sender_->Test(s, nullptr)) s = nullptr;
        }
        const absl::StatusOr<bool> through = receiver_->Test(receive, nullptr);
        ASSERT_TRUE(through.ok()) << through.status();
        if (*through) break;
        ASSERT_LT(Now(), deadline) << "round " << round << " message " << i;
      }
      ASSERT_TRUE(got == sent[static_cast<size_t>(i)]);
    }
    for (Request* s : sends) {
      if (s == nullptr) continue;
      ASSERT_TRUE(Wait(sender_.get(), s).ok());
    }
  }
}

// Its close may be read before the last chunks.
TEST_P(StreamsTest, ASenderThatClosesBehindItsLastMessageFailsNothing) {
  for (int round = 0; round < 60; ++round) {
    ASSERT_NO_FATAL_FAILURE(Join());
    const std::vector<char> sent = Pattern(3 * kChunkBytes + 17, static_cast<uint64_t>(round) + 1);
    std::vector<char> got(sent.size());
    Request* const receive = Receive(&got);
    std::thread closes([&] {
      EXPECT_TRUE(Wait(sender_.get(), Send(sent)).ok());
      sender_.reset();
    });
    const absl::Status received = Wait(receiver_.get(), receive);
    closes.join();
    ASSERT_TRUE(received.ok()) << round << ": " << received;
    ASSERT_TRUE(got == sent);
    // More than was sent fails, and says so.
    std::vector<char> more(1);
    void* data = more.data();
    const size_t one = 1;
    const int tag = 0;
    void* mr = nullptr;
    if (round % 2 == 0) {
      const absl::StatusOr<Request*> r = receiver_->Irecv(1, &data, &one, &tag, &mr);
      EXPECT_TRUE(!r.ok() || !Wait(receiver_.get(), *r).ok());
    }
    receiver_.reset();
  }
  EXPECT_GT(here_.counters().links_reused, 0u);
}

INSTANTIATE_TEST_SUITE_P(Streams, StreamsTest, ::testing::Values(1, 2, 4, 8));

}  // namespace
}  // namespace rewire::net
