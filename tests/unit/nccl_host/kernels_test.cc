// The emulated kernels over memory as NCCL's host code prepares it: rings, trees and point-to-point
// in the three protocols, for the layouts of two NCCL versions.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/nccl_host/world.h"

namespace nccl_host {
namespace {

template <typename Layout>
class KernelsTest : public ::testing::Test {
 protected:
  // Several chunks per rank, and a remainder.
  static constexpr size_t kCount = 1003;

  void Prepare(int ranks, size_t in, size_t out) {
    world_ = std::make_unique<World<Layout>>(ranks);
    in_.assign(static_cast<size_t>(ranks), std::vector<uint64_t>(in));
    out_.assign(static_cast<size_t>(ranks), std::vector<uint64_t>(out));
    send_.clear();
    receive_.clear();
    for (size_t r = 0; r < in_.size(); ++r) {
      for (size_t i = 0; i < in; ++i) in_[r][i] = Value(r, i);
      send_.push_back(reinterpret_cast<char*>(in_[r].data()));
      receive_.push_back(reinterpret_cast<char*>(out_[r].data()));
    }
  }
  static uint64_t Value(size_t rank, size_t element) { return (rank + 1) * 1000003 + element * 17; }
  uint64_t Sum(size_t element) const {
    uint64_t sum = 0;
    for (size_t r = 0; r < in_.size(); ++r) sum += Value(r, element);
    return sum;
  }

  std::unique_ptr<World<Layout>> world_;
  std::vector<std::vector<uint64_t>> in_, out_;
  std::vector<char*> send_, receive_;
};

using Layouts = ::testing::Types<Layout228, Layout230>;
TYPED_TEST_SUITE(KernelsTest, Layouts);

TYPED_TEST(KernelsTest, AllReduceSumsOverRingAndTree) {
  for (const std::string algorithm : {"RING", "TREE"}) {
    for (const std::string protocol : {"LL", "LL128", "SIMPLE"}) {
      for (const int ranks : {2, 3, 4}) {
        this->Prepare(ranks, this->kCount, this->kCount);
        const std::string function = "ncclDevFunc_AllReduce_Sum_u64_" + algorithm + "_" + protocol;
        // A second run continues at the steps where the first one ended.
        for (int run = 0; run < 2; ++run) {
          this->world_->Run(function.c_str(), this->send_, this->receive_, this->kCount);
          for (const auto& out : this->out_) {
            for (size_t i = 0; i < this->kCount; ++i) {
              ASSERT_EQ(out[i], this->Sum(i)) << function << " of " << ranks << " at " << i;
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(KernelsTest, AllGatherKeepsTheOrderOfRanks) {
  for (const std::string protocol : {"LL", "LL128", "SIMPLE"}) {
    constexpr size_t kRanks = 3;
    this->Prepare(kRanks, this->kCount, kRanks * this->kCount);
    const std::string function = "ncclDevFunc_AllGather_RING_" + protocol;
    this->world_->Run(function.c_str(), this->send_, this->receive_, 8 * this->kCount);
    for (const auto& out : this->out_) {
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], this->Value(i / this->kCount, i % this->kCount)) << function;
      }
    }
  }
}

TYPED_TEST(KernelsTest, ReduceScatterGivesEachRankItsPart) {
  for (const std::string protocol : {"LL", "LL128", "SIMPLE"}) {
    constexpr size_t kRanks = 3;
    this->Prepare(kRanks, kRanks * this->kCount, this->kCount);
    const std::string function = "ncclDevFunc_ReduceScatter_Sum_u64_RING_" + protocol;
    this->world_->Run(function.c_str(), this->send_, this->receive_, this->kCount);
    for (size_t r = 0; r < kRanks; ++r) {
      for (size_t i = 0; i < this->kCount; ++i) {
        ASSERT_EQ(this->out_[r][i], this->Sum(r * this->kCount + i)) << function;
      }
    }
  }
}

TYPED_TEST(KernelsTest, BroadcastAndReduceUseTheRoot) {
  for (const std::string protocol : {"LL", "LL128", "SIMPLE"}) {
    this->Prepare(3, this->kCount, this->kCount);
    const std::string broadcast = "ncclDevFunc_Broadcast_RING_" + protocol;
    this->world_->Run(broadcast.c_str(), this->send_, this->receive_, 8 * this->kCount, 1);
    for (const auto& out : this->out_) {
      for (size_t i = 0; i < this->kCount; ++i) ASSERT_EQ(out[i], this->Value(1, i)) << broadcast;
    }
    const std::string reduce = "ncclDevFunc_Reduce_Sum_u64_RING_" + protocol;
    this->world_->Run(reduce.c_str(), this->send_, this->receive_, this->kCount, 2);
    for (size_t i = 0; i < this->kCount; ++i) ASSERT_EQ(this->out_[2][i], this->Sum(i)) << reduce;
  }
}

TYPED_TEST(KernelsTest, SendsAndReceivesPassEachOther) {
  for (const bool ll : {false, true}) {
    constexpr int kRanks = 3;
    this->Prepare(kRanks, this->kCount, this->kCount);
    std::vector<P2pWork> works;
    for (int r = 0; r < kRanks; ++r) {
      P2pWork work{};
      work.send_address = this->send_[static_cast<size_t>(r)];
      work.receive_address = this->receive_[static_cast<size_t>(r)];
      work.send_bytes = work.receive_bytes = 8 * this->kCount;
      work.send_rank = (r + 1) % kRanks;
      work.receive_rank = (r + kRanks - 1) % kRanks;
      work.channels = work.send_channels = work.receive_channels = 1;
      work.send_chunk = work.receive_chunk = (6 << 3) | 0;  // 256 bytes
      work.send_ll = work.receive_ll = ll ? 1 : 0;
      works.push_back(work);
    }
    this->world_->RunWorks("ncclDevFunc_SendRecv", kP2pWork, works);
    for (size_t r = 0; r < kRanks; ++r) {
      for (size_t i = 0; i < this->kCount; ++i) {
        ASSERT_EQ(this->out_[r][i], this->Value((r + kRanks - 1) % kRanks, i));
      }
    }
  }
}

TYPED_TEST(KernelsTest, BroadcastsOfOneRingTravelTogether) {
  constexpr int kRanks = 3;
  this->Prepare(kRanks, this->kCount, this->kCount);
  std::vector<BroadcastWork> works;
  for (int r = 0; r < kRanks; ++r) {
    BroadcastWork work{};
    work.ring_depth = (r + kRanks - 1) % kRanks;  // the root is rank 1
    work.chunk_size = 1000;
    work.send = this->send_[static_cast<size_t>(r)];
    work.receive = this->receive_[static_cast<size_t>(r)];
    work.bytes = 8 * this->kCount;
    works.push_back(work);
  }
  this->world_->RunWorks("ncclDevFunc_AllGatherV_RING_SIMPLE", kBroadcastWork, works);
  for (const auto& out : this->out_) {
    for (size_t i = 0; i < this->kCount; ++i) ASSERT_EQ(out[i], this->Value(1, i));
  }
}

TYPED_TEST(KernelsTest, AbortEndsKernelsThatWaitForAPeer) {
  this->Prepare(2, this->kCount, this->kCount);
  // Both ranks wait for data that nobody sends.
  std::vector<P2pWork> works(2);
  for (int r = 0; r < 2; ++r) {
    P2pWork& work = works[static_cast<size_t>(r)];
    work.receive_address = this->receive_[static_cast<size_t>(r)];
    work.receive_bytes = 64;
    work.send_rank = work.receive_rank = 1 - r;
    work.channels = work.receive_channels = 1;
    work.receive_chunk = 6 << 3;
  }
  this->world_->Abort();
  this->world_->RunWorks("ncclDevFunc_SendRecv", kP2pWork, works);
}

}  // namespace
}  // namespace nccl_host
