// NCCL's contract, for every version of the ABI and for any network that the plugin finds.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/net_plugin/proxy.h"

namespace rewire::net_test {
namespace {

size_t OpenFiles() {
  size_t n = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

class Conformance : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    net_ = OpenPlugin(GetParam());
    ASSERT_NE(net_, nullptr);
    ASSERT_EQ(net_->Init(7, 0, &context_), ncclSuccess);
  }
  void TearDown() override {
    if (net_ == nullptr) return;
    EXPECT_EQ(net_->Finalize(context_), ncclSuccess);
  }
  std::vector<Message> Messages(const std::vector<size_t>& sizes) {
    std::vector<Message> out;
    for (const size_t size : sizes) out.push_back({Pattern(size, out.size() + 1), 3});
    return out;
  }
  void ExpectCarried(Connection* c, const std::vector<size_t>& sizes, size_t room) {
    const std::vector<Message> sent = Messages(sizes);
    const std::vector<std::vector<char>> got = c->Carry(sent, room);
    for (size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(got[i] == sent[i].bytes) << i;
  }

  std::shared_ptr<simnccl::Net> net_;
  void* context_ = nullptr;
};

TEST_P(Conformance, ReportsDevicesAndProperties) {
  EXPECT_EQ(net_->name(), "rewire");
  int devices = 0;
  ASSERT_EQ(net_->Devices(&devices), ncclSuccess);
  ASSERT_GE(devices, 1);
  for (int d = 0; d < devices; ++d) {
    simnccl::NetProperties p;
    ASSERT_EQ(net_->GetProperties(d, &p), ncclSuccess);
    EXPECT_NE(p.ptr_support & simnccl::kNetPtrHost, 0);
    EXPECT_GE(p.max_comms, 1024);
    EXPECT_TRUE(p.max_recvs == 1 || p.max_recvs == 8);
  }
  simnccl::NetProperties p;
  EXPECT_EQ(net_->GetProperties(devices, &p), ncclInvalidArgument);
  EXPECT_EQ(net_->GetProperties(-1, &p), ncclInvalidArgument);
}

TEST_P(Conformance, DeliversMessagesOfEverySizeInOrder) {
  Connection c(net_.get(), context_);
  ExpectCarried(&c, {0, 1, 7, 8, 39, 40, 41, 1000, 0, 65535, 65536, 65537, 1 << 20, 3, 0, 5 << 20},
                5 << 20);
}

TEST_P(Conformance, RetriesRequestsAboveTheLimit) {
  Connection c(net_.get(), context_);
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 300; ++i) sizes.push_back(i * 37 % 20000);
  ExpectCarried(&c, sizes, 20000);
}

TEST_P(Conformance, LimitsOutstandingRequestsTo32) {
  Connection c(net_.get(), context_);
  std::vector<char> byte(1);
  int given = 0;
  for (int i = 0; i < 10'000; ++i) {
    void* request = nullptr;
    ASSERT_EQ(c.Irecv(&byte, 0, &request), ncclSuccess);
    given += request != nullptr ? 1 : 0;
  }
  EXPECT_EQ(given, simnccl::kNetMaxRequests);
}

TEST_P(Conformance, LateReceivesBlockTheSender) {
  Connection c(net_.get(), context_);
  // More bytes than the kernel buffers on both sides.
  const std::vector<char> bytes = Pattern(64 << 20, 1);
  void* send = nullptr;
  int done = 0;
  for (int i = 0; i < 100; ++i) {
    if (send == nullptr) {
      ASSERT_EQ(c.Isend(bytes, 0, &send), ncclSuccess);
    } else {
      ASSERT_EQ(net_->Test(send, &done, nullptr), ncclSuccess);
    }
  }
  EXPECT_EQ(done, 0);
  std::vector<char> got(bytes.size());
  void* receive = nullptr;
  ASSERT_NO_FATAL_FAILURE(c.Receive(&got, &receive));
  int received = 0;
  const Time deadline = Soon();
  while ((done == 0 || received == 0) && Now() < deadline) {
    if (send == nullptr) {
      ASSERT_EQ(c.Isend(bytes, 0, &send), ncclSuccess);
    } else if (done == 0) {
      ASSERT_EQ(net_->Test(send, &done, nullptr), ncclSuccess);
    }
    if (received == 0) {
      ASSERT_EQ(net_->Test(receive, &received, nullptr), ncclSuccess);
    }
  }
  EXPECT_TRUE(got == bytes);
}

TEST_P(Conformance, CloseFreesOutstandingRequests) {
  // The first connection makes resources that are made only once.
  { Connection first(net_.get(), context_); }
  const size_t before = OpenFiles();
  const std::vector<char> bytes(8 << 20);
  std::vector<char> room(bytes.size());
  for (int i = 0; i < 20; ++i) {
    Connection c(net_.get(), context_);
    void* request = nullptr;
    ASSERT_NO_FATAL_FAILURE(c.Receive(&room, &request));
    request = nullptr;
    const Time deadline = Soon();
    while (request == nullptr && Now() < deadline) {
      ASSERT_EQ(c.Isend(bytes, 0, &request), ncclSuccess);
    }
  }
  EXPECT_LE(OpenFiles(), before + 4);
}

TEST_P(Conformance, ListenerClosesWithoutPeer) {
  OnThread([&] {
    char handle[simnccl::kNetHandleBytes];
    void* listener = nullptr;
    ASSERT_EQ(net_->Listen(context_, 0, handle, &listener), ncclSuccess);
    void* receiver = nullptr;
    ASSERT_EQ(net_->Accept(listener, &receiver), ncclSuccess);
    EXPECT_EQ(receiver, nullptr);
    EXPECT_EQ(net_->CloseListen(listener), ncclSuccess);
  });
}

TEST_P(Conformance, ConnectWithoutListenerFails) {
  OnThread([&] {
    char handle[simnccl::kNetHandleBytes];
    void* listener = nullptr;
    ASSERT_EQ(net_->Listen(context_, 0, handle, &listener), ncclSuccess);
    EXPECT_EQ(net_->CloseListen(listener), ncclSuccess);
    // Accept calls on another listener handle the pending connections.
    char other[simnccl::kNetHandleBytes];
    ASSERT_EQ(net_->Listen(context_, 0, other, &listener), ncclSuccess);
    void* sender = nullptr;
    void* receiver = nullptr;
    ncclResult_t result = ncclSuccess;
    const Time deadline = Soon();
    while (result == ncclSuccess && sender == nullptr && Now() < deadline) {
      result = net_->Connect(context_, 0, handle, &sender);
      ASSERT_EQ(net_->Accept(listener, &receiver), ncclSuccess);
    }
    EXPECT_EQ(sender == nullptr, result != ncclSuccess);
    if (sender != nullptr) net_->CloseSend(sender);  // an idle link detects the error later
    EXPECT_EQ(net_->CloseListen(listener), ncclSuccess);
  });
}

TEST_P(Conformance, RejectsForeignHandle) {
  char handle[simnccl::kNetHandleBytes];
  std::memset(handle, 0x5A, sizeof handle);
  void* sender = nullptr;
  EXPECT_EQ(net_->Connect(context_, 0, handle, &sender), ncclInvalidArgument);
  EXPECT_EQ(sender, nullptr);
}

TEST_P(Conformance, MessageLargerThanBufferFailsReceive) {
  Connection c(net_.get(), context_);
  const std::vector<char> bytes(100);
  std::vector<char> room(99);
  void* send = nullptr;
  void* receive = nullptr;
  ASSERT_NO_FATAL_FAILURE(c.Receive(&room, &receive));
  ncclResult_t result = ncclSuccess;
  int done = 0;
  const Time deadline = Soon();
  while (result == ncclSuccess && done == 0 && Now() < deadline) {
    if (send == nullptr) (void)c.Isend(bytes, 0, &send);
    result = net_->Test(receive, &done, nullptr);
  }
  EXPECT_EQ(result, ncclInvalidArgument);
}

TEST_P(Conformance, ReceiveFailsWhenSenderCloses) {
  Connection c(net_.get(), context_);
  std::vector<char> byte(1);
  void* receive = nullptr;
  ASSERT_NO_FATAL_FAILURE(c.Receive(&byte, &receive));
  c.CloseSender();
  ncclResult_t result = ncclSuccess;
  int done = 0;
  const Time deadline = Soon();
  while (result == ncclSuccess && done == 0 && Now() < deadline) {
    result = net_->Test(receive, &done, nullptr);
  }
  EXPECT_EQ(result, ncclRemoteError);
}

TEST_P(Conformance, SendFailsWhenReceiverCloses) {
  Connection c(net_.get(), context_);
  const std::vector<char> bytes(64 << 20);
  void* send = nullptr;
  ASSERT_EQ(c.Isend(bytes, 0, &send), ncclSuccess);
  c.CloseReceiver();
  ncclResult_t result = ncclSuccess;
  int done = 0;
  const Time deadline = Soon();
  while (result == ncclSuccess && done == 0 && Now() < deadline) {
    result = send == nullptr ? c.Isend(bytes, 0, &send) : net_->Test(send, &done, nullptr);
    Connection other(net_.get(), context_);  // making a connection also handles idle links
  }
  EXPECT_EQ(result, ncclRemoteError);
}

TEST_P(Conformance, ReusesIdleLinks) {
  { Connection first(net_.get(), context_); }
  const Counters before = PluginCounters();
  for (int i = 0; i < 5; ++i) {
    Connection again(net_.get(), context_);
    ExpectCarried(&again, {1, 100, 1 << 20}, 1 << 20);
  }
  const Counters after = PluginCounters();
  EXPECT_EQ(after.made, before.made);
  EXPECT_EQ(after.reused, before.reused + 5);
}

TEST_P(Conformance, AcceptsTwoCommunicatorsWithOneId) {
  void* second = nullptr;
  ASSERT_EQ(net_->Init(7, 0, &second), ncclSuccess);
  {
    Connection a(net_.get(), context_);
    Connection b(net_.get(), second);
    ExpectCarried(&a, {10, 20}, 64);
    ExpectCarried(&b, {30, 40}, 64);
  }
  EXPECT_EQ(net_->Finalize(second), ncclSuccess);
}

TEST_P(Conformance, FinalizeIgnoresUnknownContext) {
  if (GetParam() < 11) GTEST_SKIP() << "there is no finalize";
  EXPECT_EQ(net_->Finalize(nullptr), ncclSuccess);
  EXPECT_EQ(net_->Finalize(reinterpret_cast<void*>(uintptr_t{0x5A5A})), ncclSuccess);
}

INSTANTIATE_TEST_SUITE_P(Abi, Conformance, ::testing::Values(8, 9, 10, 11, 12),
                         [](const auto& info) { return "V" + std::to_string(info.param); });

}  // namespace
}  // namespace rewire::net_test
