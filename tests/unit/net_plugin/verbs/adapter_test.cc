// Handshakes of rails that stop or break off after each byte, on either side. The other side
// abandons them in time, keeps no resources, and meanwhile completes other handshakes. The test
// advances the clock of the rails' deadlines, so that a busy machine has no influence.
#include "net_plugin/verbs/adapter.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net_plugin/socket/stream.h"
#include "net_plugin/verbs/offer.h"
#include "tests/fakes/rdma/fabric.h"
#include "tests/unit/net_plugin/hang_guard.h"
#include "tests/unit/net_plugin/verbs/spied_driver.h"

namespace rewire::net {
namespace {

constexpr int kEnds[] = {0, 1};  // the peer stops, the peer dies

sockaddr_storage Loopback() {
  sockaddr_storage a{};
  auto& in = reinterpret_cast<sockaddr_in&>(a);
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

// A test that exceeds this time hangs.
constexpr Duration kStep = milliseconds(100);  // of the test's clock

LinksOptions Patient() {
  LinksOptions o;
  o.hello = o.connect = kHangGuard;
  return o;
}

class HalfOpenRails : public ::testing::Test {
 protected:
  // A clock that only the test advances. Thread-safe, because workers read it.
  class Clock {
   public:
    [[nodiscard]] Time now() const { return Time{} + seconds(1000) + steps_.load() * kStep; }
    void Step() { ++steps_; }

   private:
    std::atomic<int> steps_{0};
  };
  // A member with one device.
  struct Member {
    Member(rdma::fake::Fabric* fabric, const char* device, const Clock* clock) {
      fabric->AddDevice({device});
      const auto driver = Spy(fabric->MakeDriver({device}), spied);
      auto nic = Nic::Open(driver.get(), device, (*driver->Devices())[0].ports[0]);
      EXPECT_TRUE(nic.ok()) << nic.status();
      adapter = std::make_unique<Adapter>(std::vector{*nic}, std::vector<std::shared_ptr<Nic>>{},
                                          Loopback(), &links, OptionsFor(clock));
    }
    static ConnectionOptions OptionsFor(const Clock* clock) {
      ConnectionOptions o;
      o.rail.timeout = 5;
      o.rail.retries = 2;
      o.answer = o.join = milliseconds(500);
      o.arrival = milliseconds(1500);
      o.now = [clock] { return clock->now(); };
      o.run = [](const std::function<void()>& work) { work(); };
      return o;
    }
    [[nodiscard]] size_t queue_pairs() const { return spied->queue_pairs.size(); }
    Links links{Patient()};
    std::shared_ptr<Spied> spied = std::make_shared<Spied>();
    std::unique_ptr<Adapter> adapter;
  };
  using Ends = std::pair<std::unique_ptr<Sender>, std::unique_ptr<Receiver>>;

  static absl::StatusOr<Ends> Join(Member* from, ListenAddress to, Listener* listener) {
    Ends ends;
    const Time deadline = Now() + kHangGuard;
    while ((ends.first == nullptr || ends.second == nullptr) && Now() < deadline) {
      if (ends.first == nullptr) {
        auto made = from->adapter->Connect(&to);
        if (!made.ok()) return made.status();
        ends.first = *std::move(made);
      }
      if (ends.second == nullptr) {
        auto made = listener->Accept();
        if (!made.ok()) return made.status();
        ends.second = *std::move(made);
      }
    }
    return ends;
  }
  // Polls the listener; none of the pending connections is complete.
  static void ExpectNobody(Listener* listener) {
    const auto made = listener->Accept();
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_EQ(*made, nullptr);
  }
  // Encodes the frame in which a side that does not exist offers one rail.
  static std::string Frame(FrameKind kind) {
    Offer offer;
    offer.link_layer = rdma::LinkLayer::kEthernet;
    offer.gid_type = rdma::GidType::kRoceV2;
    offer.gid = rdma::Gid::OfIpv4(10, 0, 0, 77);
    offer.mtu = 4096;
    offer.speed_mbps = 100'000;
    offer.queues = {{77, 1, {}}, {78, 2, {}}};
    const std::string payload = Encode(offer);
    FrameHeader header;
    header.kind = kind;
    header.use = 1;
    header.sequence = 1;  // the rail's first attempt
    header.total = 1;
    header.bytes = static_cast<uint32_t>(payload.size());
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
  }
  static void Write(const Link& link, std::string_view bytes) {
    EXPECT_EQ(send(link.streams[0].fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static bool IsClosed(const Link& link) {
    char bytes[256];
    for (;;) {
      const ssize_t n = recv(link.streams[0].fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n <= 0) return n == 0 || errno == ECONNRESET;
    }
  }

  static constexpr size_t kQueuePairs = RailOptions{}.queue_pairs;
  Clock clock_;
  rdma::fake::Fabric fabric_;
  Member a_{&fabric_, "a", &clock_};
  Member b_{&fabric_, "b", &clock_};
};

TEST_F(HalfOpenRails, DropsSenderThatStopsOrDiesInItsOffer) {
  const absl::StatusOr<ListenAddress> address = b_.adapter->Listen();
  ASSERT_TRUE(address.ok());
  const auto listener = b_.adapter->MakeListener(address->listener);
  Links strange(Patient());
  std::deque<std::unique_ptr<Link>> stopped;
  const std::string offer = Frame(FrameKind::kJoin);
  for (const int dies : kEnds) {
    for (size_t bytes = 0; bytes <= offer.size(); ++bytes) {
      ListenAddress to = *address;
      std::unique_ptr<Link> link;
      const Time deadline = Now() + kHangGuard;
      while (link == nullptr && Now() < deadline) {
        auto made = strange.Connect(Loopback(), 1, &to);
        ASSERT_TRUE(made.ok()) << made.status();
        link = *std::move(made);
        ASSERT_NO_FATAL_FAILURE(ExpectNobody(listener.get()));
      }
      ASSERT_NE(link, nullptr);
      Write(*link, std::string_view(offer).substr(0, bytes));
      if (dies == 0) stopped.push_back(std::move(link));
    }
  }
  const auto ends = Join(&a_, *address, listener.get());
  ASSERT_TRUE(ends.ok()) << ends.status();
  EXPECT_TRUE(ends->first != nullptr && ends->second != nullptr);
  // Waits until all are abandoned, and only the one connection is left.
  const Time deadline = Now() + kHangGuard;
  while (Now() < deadline && (!stopped.empty() || b_.queue_pairs() > kQueuePairs)) {
    clock_.Step();
    ASSERT_NO_FATAL_FAILURE(ExpectNobody(listener.get()));
    std::erase_if(stopped, [](const auto& link) { return IsClosed(*link); });
  }
  EXPECT_TRUE(stopped.empty());
  EXPECT_EQ(b_.queue_pairs(), kQueuePairs);
}

TEST_F(HalfOpenRails, DropsReceiverThatStopsOrDiesInItsAnswer) {
  Links strange(Patient());
  const std::string answer = Frame(FrameKind::kJoined);
  struct Silent {
    ListenAddress address;
    std::unique_ptr<Link> link;
    size_t bytes = 0;
    bool dies = false;
    bool answered = false;
    bool over = false;  // at the connecting side
  };
  std::deque<Silent> all;
  for (const int dies : kEnds) {
    for (size_t bytes = 0; bytes <= answer.size(); ++bytes) {
      Silent& s = all.emplace_back();
      const absl::StatusOr<ListenAddress> address = strange.Listen(Loopback());
      ASSERT_TRUE(address.ok()) << address.status();
      s.address = *address;
      s.address.device = 1;
      s.address.ports = 1;
      s.bytes = bytes;
      s.dies = dies != 0;
    }
  }
  const absl::StatusOr<ListenAddress> address = b_.adapter->Listen();
  ASSERT_TRUE(address.ok());
  const auto listener = b_.adapter->MakeListener(address->listener);
  bool joined = false;
  size_t over = 0;
  const Time deadline = Now() + kHangGuard;
  while (over < all.size() && Now() < deadline) {
    // None is abandoned before it has been answered.
    const bool waits =
        std::any_of(all.begin(), all.end(), [](const Silent& s) { return !s.answered && !s.over; });
    if (joined && !waits) clock_.Step();
    for (Silent& s : all) {
      if (s.over) continue;
      const auto made = a_.adapter->Connect(&s.address);
      if (!made.ok()) {
        EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable) << made.status();
        s.over = true;
        ++over;
        continue;
      }
      ASSERT_EQ(*made, nullptr);
      auto came = strange.Accept(s.address.listener);
      ASSERT_TRUE(came.ok()) << came.status();
      if (*came == nullptr) continue;
      s.answered = true;
      Write(**came, std::string_view(answer).substr(0, s.bytes));
      if (!s.dies) s.link = *std::move(came);
    }
    if (!joined) {
      const auto ends = Join(&a_, *address, listener.get());
      ASSERT_TRUE(ends.ok()) << ends.status();
      joined = ends->first != nullptr && ends->second != nullptr;
    }
  }
  EXPECT_TRUE(joined);
  EXPECT_EQ(over, all.size());
  EXPECT_EQ(a_.queue_pairs(), kQueuePairs);  // of the idle link
}

}  // namespace
}  // namespace rewire::net
