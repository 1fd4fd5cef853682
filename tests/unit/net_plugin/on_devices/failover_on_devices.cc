// Traffic over two rails between the devices 0, 1 and 2, 3 of this machine, while tests/rdma_vm's
// `fault` does things to them. What arrives is right, in order, and nobody sees an error; how long
// it stopped is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

#include "net_plugin/core/net.h"
#include "reconfig/base/hash.h"

namespace rewire::net {
namespace {

constexpr size_t kBytes = 96 << 10;
constexpr size_t kOutstanding = 8;

// A connection, and messages one after the other over it. Of the test's thread.
class Flow {
 public:
  void Connect(Net* net, int from, int to) {
    char handle[kHandleBytes];
    auto listener = net->Listen(to, handle);
    ASSERT_TRUE(listener.ok()) << listener.status();
    const Time deadline = Now() + seconds(30);
    while ((sender_ == nullptr || receiver_ == nullptr) && Now() < deadline) {
      if (sender_ == nullptr) {
        auto made = net->Connect(from, handle);
        ASSERT_TRUE(made.ok()) << made.status();
        sender_ = *std::move(made);
      }
      if (receiver_ == nullptr) {
        auto made = (*listener)->Accept();
        ASSERT_TRUE(made.ok()) << made.status();
        receiver_ = *std::move(made);
      }
    }
    ASSERT_TRUE(sender_ != nullptr && receiver_ != nullptr);
    for (size_t i = 0; i < kOutstanding; ++i) {
      out_[i].resize(kBytes);
      in_[i].resize(kBytes);
      sources_[i] = *sender_->Register(out_[i].data(), kBytes, kPtrHost);
      targets_[i] = *receiver_->Register(in_[i].data(), kBytes, kPtrHost);
    }
  }
  ~Flow() {
    for (size_t i = 0; i < kOutstanding; ++i) {
      if (sender_ != nullptr) (void)sender_->Deregister(sources_[i]);
      if (receiver_ != nullptr) (void)receiver_->Deregister(targets_[i]);
    }
  }

  // So many messages more.
  void Carry(const std::string& when, uint64_t messages) {
    const uint64_t end = received_ + messages;
    const Time deadline = Now() + seconds(90);
    Time last = Now();
    Duration gap{};
    while (received_ < end || sent_ < end) {
      ASSERT_LT(Now(), deadline) << when << ": " << received_ << " of " << end;
      ASSERT_NO_FATAL_FAILURE(Receive(end));
      ASSERT_NO_FATAL_FAILURE(Send(end));
      if (!moved_) continue;
      moved_ = false;
      gap = std::max(gap, Now() - last);
      last = Now();
    }
    if (when.empty()) return;
    std::printf("%-28s %4llu messages, longest gap %.1f ms\n", when.c_str(),
                static_cast<unsigned long long>(messages), ToMilliseconds(gap));
    std::fflush(stdout);
  }

 private:
  void Receive(uint64_t end) {
    if (posted_ < end && posted_ < received_ + kOutstanding) {
      void* data = in_[posted_ % kOutstanding].data();
      const int tag = 1;
      const auto made =
          receiver_->Irecv(1, &data, &kBytes, &tag, &targets_[posted_ % kOutstanding]);
      ASSERT_TRUE(made.ok()) << made.status();
      if (*made != nullptr) {
        receives_.push_back(*made);
        ++posted_;
      }
    }
    if (receives_.empty()) return;
    int size = 0;
    const auto done = receiver_->Test(receives_.front(), &size);
    ASSERT_TRUE(done.ok()) << done.status();
    if (!*done) return;
    receives_.pop_front();
    ASSERT_EQ(size, static_cast<int>(kBytes));
    for (size_t i = 0; i < kBytes; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, in_[received_ % kOutstanding].data() + i, 8);
      ASSERT_EQ(word, MixWord(received_, i)) << "message " << received_ << " at " << i;
    }
    ++received_;
    moved_ = true;
  }
  void Send(uint64_t end) {
    if (begun_ < end && begun_ < sent_ + kOutstanding) {
      std::vector<char>& bytes = out_[begun_ % kOutstanding];
      for (size_t i = 0; i < kBytes; i += 8) {
        const uint64_t word = MixWord(begun_, i);
        std::memcpy(bytes.data() + i, &word, 8);
      }
      const auto made = sender_->Isend(bytes.data(), kBytes, 1, sources_[begun_ % kOutstanding]);
      ASSERT_TRUE(made.ok()) << made.status();
      if (*made != nullptr) {
        sends_.push_back(*made);
        ++begun_;
      }
    }
    if (sends_.empty()) return;
    const auto done = sender_->Test(sends_.front(), nullptr);
    ASSERT_TRUE(done.ok()) << done.status();
    if (!*done) return;
    sends_.pop_front();
    ++sent_;
  }

  std::unique_ptr<Sender> sender_;
  std::unique_ptr<Receiver> receiver_;
  std::vector<char> out_[kOutstanding];
  std::vector<char> in_[kOutstanding];
  void* sources_[kOutstanding] = {};
  void* targets_[kOutstanding] = {};
  std::deque<Request*> sends_;
  std::deque<Request*> receives_;
  uint64_t begun_ = 0;
  uint64_t sent_ = 0;
  uint64_t posted_ = 0;
  uint64_t received_ = 0;
  bool moved_ = false;
};

void Fault(const std::string& what) {
  ASSERT_EQ(std::system(("fault " + what).c_str()), 0) << what;
}

// Until all rails that have failed are back.
void AwaitRails(const Net& net, Flow* flow) {
  const Time deadline = Now() + seconds(60);
  while (net.counters().rails_back < net.counters().rails_failed) {
    ASSERT_LT(Now(), deadline);
    ASSERT_NO_FATAL_FAILURE(flow->Carry("", 1));
  }
}

TEST(OnDevices, NothingIsLostWhateverFails) {
  if (std::getenv("REWIRE_VM_DEVICES") == nullptr) GTEST_SKIP() << "not in the virtual machine";
  const absl::StatusOr<Net*> net = Net::Get();
  ASSERT_TRUE(net.ok()) << net.status();
  ASSERT_EQ((*net)->devices(), 4);
  const int left[] = {0, 1};
  const int right[] = {2, 3};
  const absl::StatusOr<int> from = (*net)->MakeVirtual(left);
  const absl::StatusOr<int> to = (*net)->MakeVirtual(right);
  ASSERT_TRUE(from.ok() && to.ok());
  Flow flow;
  ASSERT_NO_FATAL_FAILURE(flow.Connect(*net, *from, *to));
  ASSERT_NO_FATAL_FAILURE(flow.Carry("two rails", 100));
  const std::pair<const char*, const char*> faults[] = {
      {"rxe0 unplug", "rxe0 plug"},
      {"rxe3 unplug", "rxe3 plug"},
      {"rxe1 down", "rxe1 up"},
      {"rxe2 down", "rxe2 up"},
      {"rxe0 netem loss 100%", "rxe0 clear"},
      {"rxe3 netem loss 100%", "rxe3 clear"},
      {"rxe1 netem loss 3% delay 3ms", "rxe1 clear"},
  };
  for (const auto& [fault, repair] : faults) {
    ASSERT_NO_FATAL_FAILURE(Fault(fault));
    ASSERT_NO_FATAL_FAILURE(flow.Carry(fault, 60));
    ASSERT_NO_FATAL_FAILURE(Fault(repair));
    ASSERT_NO_FATAL_FAILURE(flow.Carry(repair, 60));
    ASSERT_NO_FATAL_FAILURE(AwaitRails(**net, &flow));
  }
  ASSERT_NO_FATAL_FAILURE(Fault("rxe0 unplug"));
  ASSERT_NO_FATAL_FAILURE(Fault("rxe1 unplug"));
  ASSERT_NO_FATAL_FAILURE(flow.Carry("no rail is left", 60));
  ASSERT_NO_FATAL_FAILURE(Fault("rxe0 plug"));
  ASSERT_NO_FATAL_FAILURE(Fault("rxe1 plug"));
  ASSERT_NO_FATAL_FAILURE(AwaitRails(**net, &flow));
  ASSERT_NO_FATAL_FAILURE(flow.Carry("both are back", 200));
  EXPECT_GE((*net)->counters().rails_failed, std::size(faults) - 1);
}

}  // namespace
}  // namespace rewire::net
