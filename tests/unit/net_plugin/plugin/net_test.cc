// The core's devices with two RDMA ports: the properties that NCCL gets, and virtual devices.
#include "net_plugin/plugin/net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>

#include "reconfig/base/counters.h"
#include "tests/unit/net_plugin/fake_devices.h"
#include "tests/unit/net_plugin/hang_guard.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

// A test that exceeds this time hangs.

class NetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    const absl::StatusOr<Net*> net = Net::Get();
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = *net;
  }
  struct Ends {
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
  };
  void Join(int from, int to, Ends* ends) {
    char handle[kHandleBytes];
    auto listener = net_->Listen(to, handle);
    ASSERT_TRUE(listener.ok()) << listener.status();
    ASSERT_NO_FATAL_FAILURE(Join(from, handle, listener->get(), ends));
  }
  void Join(int from, char* handle, Listener* listener, Ends* ends) {
    auto& [sender, receiver] = *ends;
    const Time deadline = Now() + kHangGuard;
    while ((sender == nullptr || receiver == nullptr) && Now() < deadline) {
      if (sender == nullptr) {
        auto made = net_->Connect(from, handle);
        ASSERT_TRUE(made.ok()) << made.status();
        sender = *std::move(made);
      }
      if (receiver == nullptr) {
        auto made = listener->Accept();
        ASSERT_TRUE(made.ok()) << made.status();
        receiver = *std::move(made);
      }
    }
    ASSERT_TRUE(sender != nullptr && receiver != nullptr);
  }
  static void Test(Comm* comm, Request* request, bool* done) {
    const absl::StatusOr<bool> tested = comm->Test(request, nullptr);
    ASSERT_TRUE(tested.ok()) << tested.status();
    *done = *tested;
  }
  // Carries one message from a device to another. Calls `between` while the message is on its way.
  void Carry(
      int from, int to, size_t bytes = 3 << 20, const std::function<void()>& between = [] {}) {
    Ends ends;
    ASSERT_NO_FATAL_FAILURE(Join(from, to, &ends));
    auto& [sender, receiver] = ends;
    const Time deadline = Now() + kHangGuard;
    std::vector<char> out(bytes, 'x');
    std::vector<char> in(out.size());
    const auto source = sender->Register(out.data(), out.size(), kPtrHost);
    ASSERT_TRUE(source.ok()) << source.status();
    const auto target = receiver->Register(in.data(), in.size(), kPtrHost);
    ASSERT_TRUE(target.ok()) << target.status();
    void* data = in.data();
    void* memory = *target;
    const size_t room = in.size();
    const int tag = 9;
    Request* receive = nullptr;
    while (receive == nullptr && Now() < deadline) {
      const auto made = receiver->Irecv(1, &data, &room, &tag, &memory);
      ASSERT_TRUE(made.ok()) << made.status();
      receive = *made;
    }
    ASSERT_NE(receive, nullptr);
    Request* send = nullptr;
    bool sent = false;
    bool received = false;
    while (!(sent && received) && Now() < deadline) {
      if (send == nullptr) {
        const auto made = sender->Isend(out.data(), out.size(), tag, *source);
        ASSERT_TRUE(made.ok()) << made.status();
        send = *made;
        if (send != nullptr) between();
      } else if (!sent) {
        ASSERT_NO_FATAL_FAILURE(Test(sender.get(), send, &sent));
      }
      if (!received) {
        ASSERT_NO_FATAL_FAILURE(Test(receiver.get(), receive, &received));
      }
    }
    EXPECT_TRUE(sent);
    EXPECT_TRUE(received);
    EXPECT_TRUE(in == out);
    EXPECT_EQ(sender->Deregister(*source), absl::OkStatus());
    EXPECT_EQ(receiver->Deregister(*target), absl::OkStatus());
  }

  Net* net_ = nullptr;
};

TEST_F(NetTest, ListsPortsAsDevices) {
  ASSERT_GE(net_->devices(), 2);
  const auto p = net_->Properties(1);
  ASSERT_TRUE(p.ok());
  EXPECT_STREQ(p->name, "fake1:1");
  EXPECT_THAT(p->pci_path, HasSubstr("/sys/devices/pci"));
  EXPECT_EQ(p->speed_mbps, 100'000);
  EXPECT_EQ(p->port, 1);
  EXPECT_EQ(p->max_recvs, kMaxRecvs);
  EXPECT_EQ(p->ptr_support & (kPtrHost | kPtrDmabuf), kPtrHost | kPtrDmabuf);
  EXPECT_EQ(p->device_count, 1);
  EXPECT_EQ(p->devices[0], 1);
  const auto first = net_->Properties(0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_NE(p->guid, first->guid);
}

TEST_F(NetTest, JoinsPortsToVirtualDevice) {
  const int both[] = {0, 1};
  const auto made = net_->MakeVirtual(both);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(net_->MakeVirtual(both).value_or(-1), *made);
  const auto p = net_->Properties(*made);
  ASSERT_TRUE(p.ok());
  EXPECT_STREQ(p->name, "fake0:1+fake1:1");
  EXPECT_EQ(p->speed_mbps, 200'000);
  EXPECT_EQ(p->device_count, 2);
  EXPECT_EQ(p->devices[1], 1);
  ASSERT_NO_FATAL_FAILURE(Carry(*made, *made));
  ASSERT_NO_FATAL_FAILURE(Carry(0, *made));
  ASSERT_NO_FATAL_FAILURE(Carry(*made, 1));
  ASSERT_NO_FATAL_FAILURE(Carry(0, 1));
  const int wrong[] = {0, 77};
  EXPECT_FALSE(net_->MakeVirtual(wrong).ok());
}

// The receiver has everything and NCCL does not poll it again, but its answer is still needed.
TEST_F(NetTest, ReceiverWithoutRequestsAnswersItsSender) {
  const uint64_t before = ValueOf(Counter::kNetRailsFailed);
  // Other rails take over until the rail that other tests have broken is back.
  const Time deadline = Now() + kHangGuard;
  while (ValueOf(Counter::kNetRailsFailed) == before && Now() < deadline) {
    // The message arrives, but the acknowledgement is lost.
    const auto silence = [] { FakeFabric().SetLoss("fake1", 1'000'000); };
    ASSERT_NO_FATAL_FAILURE(Carry(0, 1, 1000, silence));
    FakeFabric().SetLoss("fake1", 0);
  }
  EXPECT_GT(ValueOf(Counter::kNetRailsFailed), before);
}

// Nobody polls an idle link: events of its rails are found at its next use.
TEST_F(NetTest, ReusesLinkAfterPortFlap) {
  const int both[] = {0, 1};
  const absl::StatusOr<int> made = net_->MakeVirtual(both);
  ASSERT_TRUE(made.ok()) << made.status();
  const int device = *made;
  ASSERT_NO_FATAL_FAILURE(Carry(device, device));
  const auto broken_or_made = [] {
    return ValueOf(Counter::kNetRailsFailed) + ValueOf(Counter::kNetLinksMade);
  };
  const uint64_t before = broken_or_made();
  const uint64_t reused = ValueOf(Counter::kNetLinksReused);
  FakeFabric().SetLinkUp("fake0", false);
  FakeFabric().SetLinkUp("fake0", true);
  ASSERT_NO_FATAL_FAILURE(Carry(device, device));
  FakeFabric().SetLinkUp("fake1", false);
  ASSERT_NO_FATAL_FAILURE(Carry(device, device));
  FakeFabric().SetLinkUp("fake1", true);
  ASSERT_NO_FATAL_FAILURE(Carry(device, device));
  // A side that learns of the port's event before the sender has noticed it drops the link.
  EXPECT_GT(broken_or_made(), before);
  EXPECT_GT(ValueOf(Counter::kNetLinksReused), reused);
}

TEST_F(NetTest, ErrorNamesPeerWithSockets) {
  char handle[kHandleBytes];
  ListenAddress sockets;
  sockets.address.ss_family = AF_INET;
  EncodeAddress(sockets, handle);
  const auto status = net_->Connect(0, handle).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("this side uses RDMA"));
}

// A peer that sends its hello and nothing else does not block other peers.
TEST_F(NetTest, DropsHalfOpenHandshake) {
  char handle[kHandleBytes];
  auto listener = net_->Listen(0, handle);
  ASSERT_TRUE(listener.ok()) << listener.status();
  absl::StatusOr<ListenAddress> address = DecodeAddress(handle);
  sockaddr_storage local = address->address;
  reinterpret_cast<sockaddr_in&>(local).sin_port = 0;
  LinksOptions patient;
  patient.hello = patient.connect = kHangGuard;
  Links silent(patient);
  std::unique_ptr<Link> half;
  const Time deadline = Now() + kHangGuard;
  while (half == nullptr && Now() < deadline) {
    auto link = silent.Connect(local, 1, &*address);
    ASSERT_TRUE(link.ok()) << link.status();
    half = *std::move(link);
    const auto made = (*listener)->Accept();
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_EQ(*made, nullptr);
  }
  ASSERT_NE(half, nullptr);
  Ends ends;
  Join(0, handle, listener->get(), &ends);
}

}  // namespace
}  // namespace rewire::net
