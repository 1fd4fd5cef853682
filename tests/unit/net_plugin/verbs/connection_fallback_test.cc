// NICs that NCCL has not chosen take over traffic that the chosen ones cannot carry, before sockets
// do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "reconfig/base/unique_fd.h"
#include "tests/unit/net_plugin/verbs/pair.h"

namespace rewire::net {
namespace {

constexpr size_t kBytes = 1 << 20;

PairOptions OneEach(size_t sender_others, size_t receiver_others) {
  PairOptions options;
  options.sender_ports = options.receiver_ports = 1;
  options.sender_others = sender_others;
  options.receiver_others = receiver_others;
  return options;
}

class FallbackRails : public ::testing::Test {
 protected:
  // The memory also has a descriptor.
  struct Buffer {
    Buffer() : fd(memfd_create("buffer", MFD_CLOEXEC)) {
      EXPECT_EQ(ftruncate(fd.get(), kBytes), 0);
      data = static_cast<char*>(
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    }
    ~Buffer() { munmap(data, kBytes); }
    UniqueFd fd;
    char* data = nullptr;
    void* memory = nullptr;
  };

  void Join(const PairOptions& options) {
    pair_ = std::make_unique<Pair>(options);
    const absl::Status joined = pair_->Join();
    ASSERT_TRUE(joined.ok()) << joined;
  }
  void Register(int type) {
    for (size_t i = 0; i < kBytes; ++i) out_.data[i] = static_cast<char>(i * 7 + i / 256);
    out_.memory = Registered(pair_->sender.get(), &out_, type);
    in_.memory = Registered(pair_->receiver.get(), &in_, type);
  }
  static void* Registered(Comm* comm, Buffer* buffer, int type) {
    const auto made = type == (kPtrCuda | kPtrDmabuf)
                          ? comm->RegisterDmabuf(buffer->data, kBytes, kPtrCuda, 0,
                                                 UniqueFd(dup(buffer->fd.get())).get())
                          : comm->Register(buffer->data, kBytes, type);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or(nullptr);
  }
  absl::Status Carry() {
    std::memset(in_.data, 0, kBytes);
    const absl::Status status = pair_->Carry(out_.data, out_.memory, in_.data, in_.memory, kBytes);
    if (!status.ok()) return status;
    return std::memcmp(in_.data, out_.data, kBytes) == 0 ? absl::OkStatus()
                                                         : absl::DataLossError("wrong bytes");
  }
  void End() {
    EXPECT_TRUE(pair_->sender->Deregister(out_.memory).ok());
    EXPECT_TRUE(pair_->receiver->Deregister(in_.memory).ok());
  }
  // Carries messages until the sender writes most of a message from this device.
  void CarryUntilItGoesOver(const std::string& device) {
    uint64_t bytes = 0;
    for (int i = 0; i < 200 && bytes < kBytes; ++i) {
      pair_->sender_spied->bytes.clear();
      ASSERT_EQ(Carry(), absl::OkStatus());
      bytes = pair_->sender_spied->bytes[device];
    }
    EXPECT_GE(bytes, kBytes) << device;
  }

  std::unique_ptr<Pair> pair_;
  Buffer out_;
  Buffer in_;
};

TEST_F(FallbackRails, AreUsedWhileChosenRailIsDown) {
  for (const int type : {kPtrHost, kPtrCuda, kPtrCuda | kPtrDmabuf}) {
    SCOPED_TRACE(type);
    Join(OneEach(1, 1));
    Register(type);
    ASSERT_EQ(Carry(), absl::OkStatus());
    EXPECT_EQ(pair_->sender_spied->bytes["s1"], 0u);
    pair_->fabric.SetLinkUp("s0", false);
    CarryUntilItGoesOver("s1");
    EXPECT_EQ(pair_->counters->fallback.load(), 1u);
    EXPECT_EQ(pair_->counters->failed.load(), 1u);
    pair_->fabric.SetLinkUp("s0", true);
    CarryUntilItGoesOver("s0");
    EXPECT_EQ(pair_->counters->back.load(), 1u);
    // The port that took over is still joined.
    pair_->fabric.SetLinkUp("r0", false);
    CarryUntilItGoesOver("s1");
    End();
  }
}

TEST_F(FallbackRails, WorkWithFallbackOnOneSide) {
  Join(OneEach(2, 0));
  Register(kPtrHost);
  pair_->fabric.SetLinkUp("s0", false);
  CarryUntilItGoesOver("s1");
  pair_->fabric.SetLinkUp("s1", false);
  CarryUntilItGoesOver("s2");
  End();
  Join(OneEach(0, 1));
  Register(kPtrHost);
  pair_->fabric.SetLinkUp("r0", false);
  CarryUntilItGoesOver("s0");
  End();
}

// A port whose packets are lost fails like a port without a link, only later.
TEST_F(FallbackRails, SkipUnreachablePort) {
  Join(OneEach(2, 2));
  Register(kPtrHost);
  pair_->fabric.SetLoss("s1", 1'000'000);
  pair_->fabric.SetLinkUp("r0", false);
  CarryUntilItGoesOver("s2");
  EXPECT_EQ(pair_->counters->fallback.load(), 1u);
  End();
}

TEST_F(FallbackRails, AreUsedFromTheStart) {
  Pair pair(OneEach(1, 1));
  pair.fabric.SetLinkUp("r0", false);
  EXPECT_EQ(pair.Join(), absl::OkStatus());
}

TEST_F(FallbackRails, RegisterMemoryOnWorkingNic) {
  Join(OneEach(1, 1));
  pair_->fabric.FailDevice("s0");
  pair_->fabric.FailDevice("r0");
  Register(kPtrHost);
  CarryUntilItGoesOver("s1");
  End();
}

// The memory goes away during its background registration.
TEST_F(FallbackRails, AllowDeregistrationBeforeRegistration) {
  Join(OneEach(1, 1));
  Register(kPtrHost);
  pair_->fabric.SetLinkUp("s0", false);
  for (int i = 0; i < 200 && pair_->counters->fallback.load() == 0; ++i) {
    ASSERT_EQ(Carry(), absl::OkStatus());
  }
  for (int i = 0; i < 20; ++i) {
    End();
    Register(kPtrHost);
    ASSERT_EQ(Carry(), absl::OkStatus());
  }
  End();
}

// A flush skips the rails of a failed NIC and uses the rails that work.
TEST_F(FallbackRails, FlushDeviceMemoryOnWorkingNic) {
  Join(OneEach(1, 1));
  Register(kPtrCuda);
  const auto flush = [&] {
    void* data = in_.data;
    const auto begun = pair_->receiver->Iflush(1, &data, &in_.memory);
    if (!begun.ok()) return begun.status();
    for (int i = 0; i < 100'000 && *begun != nullptr; ++i) {
      const auto done = pair_->receiver->Test(*begun, nullptr);
      if (!done.ok()) return done.status();
      if (*done) return absl::OkStatus();
    }
    return *begun == nullptr ? absl::OkStatus() : absl::DeadlineExceededError("it did not end");
  };
  const auto reads = [&](const char* device) {
    pair_->receiver_spied->bytes.clear();
    EXPECT_EQ(flush(), absl::OkStatus());
    return pair_->receiver_spied->bytes[device];
  };
  ASSERT_EQ(Carry(), absl::OkStatus());
  EXPECT_EQ(reads("r0"), 1u);
  pair_->fabric.FailDevice("r0");
  EXPECT_EQ(flush(), absl::OkStatus());
  CarryUntilItGoesOver("s1");
  EXPECT_EQ(reads("r0"), 0u);
  EXPECT_EQ(reads("r1"), 1u);
  End();
}

}  // namespace
}  // namespace rewire::net
