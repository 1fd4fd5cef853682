// Bit-exact restored slots and reduced gradients, and the bytes that NCCL received, with ranks as
// threads on the simulated GPU.
#include "reconfig/moe/fsep/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "tests/unit/moe/fsep/driver.h"
#include "tests/unit/moe/fsep/reference.h"
#include "tests/unit/simgpu_nccl/world.h"

namespace rewire::moe::fsep {
namespace {

using simnccl::Rank;
using ::testing::HasSubstr;

// Bytes that this thread's rank passed to NCCL, by peer.
thread_local std::map<int, uint64_t> sent, received;

NcclCalls CountingCalls() {
  NcclCalls calls{ncclGetErrorString, ncclCommCount, ncclCommUserRank, ncclGroupStart,
                  ncclGroupEnd,       nullptr,       nullptr};
  calls.Send = [](const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
    sent[peer] += count;
    return ncclSend(data, count, type, peer, comm, stream);
  };
  calls.Recv = [](void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
    received[peer] += count;
    return ncclRecv(data, count, type, peer, comm, stream);
  };
  return calls;
}

Placement SomePlacement(const Shape& shape, uint64_t seed) {
  const uint32_t slots = shape.topology.devices() * shape.capacity;
  std::mt19937_64 random(seed);
  Placement placement{shape.capacity, {}};
  for (uint32_t s = 0; s < slots; ++s) {
    const bool empty = s >= shape.experts && random() % 6 == 0;
    placement.slots.push_back(s < shape.experts ? s
                              : empty           ? kEmptySlot
                                                : static_cast<uint32_t>(random() % shape.experts));
  }
  std::shuffle(placement.slots.begin(), placement.slots.end(), random);
  return placement;
}

// Returns the distinct experts of the slots from `begin`.
uint64_t Distinct(const Placement& placement, uint32_t begin, uint32_t slots) {
  const auto first = placement.slots.begin() + static_cast<ptrdiff_t>(begin);
  std::set<uint32_t> experts(first, first + static_cast<ptrdiff_t>(slots));
  experts.erase(kEmptySlot);
  return experts.size();
}

uint64_t BytesWith(const std::map<int, uint64_t>& bytes, const Topology& topology, uint32_t node) {
  uint64_t sum = 0;
  for (const auto& [peer, count] : bytes) {
    if (static_cast<uint32_t>(peer) / topology.per_node == node) sum += count;
  }
  return sum;
}
uint64_t Total(const std::map<int, uint64_t>& bytes) {
  uint64_t sum = 0;
  for (const auto& [peer, count] : bytes) sum += count;
  return sum;
}

// One rank's memory and its expected contents.
class Member {
 public:
  Member(const Shape& shape, Rank* gpu)
      : shape_(shape),
        gpu_(*gpu),
        weights_(Make(shape.ShardChunks() * shape.WeightChunk())),
        slots_(Make(shape.SlotChunks() * shape.WeightChunk())),
        gradients_(Make(shape.ShardChunks() * shape.GradientChunk())),
        slot_gradients_(Make(shape.SlotChunks() * shape.GradientChunk())) {}

  void Restore(Exchange* exchange, uint32_t layer, const Placement& placement) {
    for (uint64_t i = 0; i < shape_.ShardChunks() * shape_.WeightChunk(); ++i) {
      weights_[i] = WeightByte(layer, static_cast<uint32_t>(i / shape_.WeightChunk()), shape_.rank,
                               i % shape_.WeightChunk());
    }
    sent.clear(), received.clear();
    const absl::Status done = exchange->Restore(layer, reinterpret_cast<CUdeviceptr>(weights_),
                                                reinterpret_cast<CUdeviceptr>(slots_), stream());
    ASSERT_TRUE(done.ok()) << done;
    ASSERT_TRUE(gpu_.Sync());
    uint64_t wrong = 0;
    for (uint32_t s = 0; s < shape_.capacity; ++s) {
      const uint32_t expert = placement.slots[shape_.rank * shape_.capacity + s];
      if (expert == kEmptySlot) continue;
      for (uint64_t i = 0; i < Devices() * shape_.WeightChunk(); ++i) {
        const auto chunk = static_cast<uint32_t>(i / shape_.WeightChunk());
        const uint8_t expected = WeightByte(layer, expert, chunk, i % shape_.WeightChunk());
        wrong += slots_[uint64_t{s} * Devices() * shape_.WeightChunk() + i] != expected;
      }
    }
    EXPECT_EQ(wrong, 0u);
    const uint64_t mine = Distinct(placement, shape_.rank * shape_.capacity, shape_.capacity);
    EXPECT_EQ(Total(received), mine * (Devices() - 1) * shape_.WeightChunk());
    for (uint32_t node = 0; node < shape_.topology.nodes; ++node) {
      if (node == shape_.rank / shape_.topology.per_node) continue;
      EXPECT_EQ(BytesWith(sent, shape_.topology, node),
                InNode(placement, node) * shape_.WeightChunk());
    }
  }

  void Reduce(Exchange* exchange, uint32_t layer, const Placement& placement) {
    const auto put = [&](uint8_t* to, uint64_t i, uint32_t element) {
      std::memcpy(to + i * BytesOf(shape_.gradient), &element, BytesOf(shape_.gradient));
    };
    for (uint64_t i = 0; i < shape_.ShardChunks() * shape_.elements; ++i) {
      put(gradients_, i, ShardElement(shape_, layer, shape_.rank, i));
    }
    const uint64_t in_slot = Devices() * shape_.elements;
    for (uint64_t i = 0; i < shape_.capacity * in_slot; ++i) {
      put(slot_gradients_, i,
          SlotElement(shape_, layer, shape_.rank, static_cast<uint32_t>(i / in_slot), i % in_slot));
    }
    sent.clear(), received.clear();
    const absl::Status done =
        exchange->Reduce(layer, reinterpret_cast<CUdeviceptr>(slot_gradients_),
                         reinterpret_cast<CUdeviceptr>(gradients_), stream());
    ASSERT_TRUE(done.ok()) << done;
    ASSERT_TRUE(gpu_.Sync());
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < shape_.ShardChunks() * shape_.elements; ++i) {
      uint32_t element = 0;
      std::memcpy(&element, gradients_ + i * BytesOf(shape_.gradient), BytesOf(shape_.gradient));
      wrong +=
          element != ReducedElement(shape_, placement, static_cast<uint32_t>(i / shape_.elements),
                                    shape_.rank, i % shape_.elements,
                                    ShardElement(shape_, layer, shape_.rank, i),
                                    [&](uint32_t device, uint32_t slot, uint64_t at) {
                                      return SlotElement(shape_, layer, device, slot, at);
                                    });
    }
    EXPECT_EQ(wrong, 0u);
    for (uint32_t node = 0; node < shape_.topology.nodes; ++node) {
      if (node == shape_.rank / shape_.topology.per_node) continue;
      EXPECT_EQ(BytesWith(received, shape_.topology, node),
                InNode(placement, node) * shape_.GradientChunk());
    }
  }

 private:
  uint8_t* Make(uint64_t bytes) { return static_cast<uint8_t*>(gpu_.Alloc(bytes)); }
  [[nodiscard]] CUstream stream() const { return reinterpret_cast<CUstream>(gpu_.stream()); }
  [[nodiscard]] uint32_t Devices() const { return shape_.topology.devices(); }
  // Returns the experts of a node: the chunks that cross between the node and a device of another
  // node.
  [[nodiscard]] uint64_t InNode(const Placement& placement, uint32_t node) const {
    const uint32_t slots = shape_.topology.per_node * shape_.capacity;
    return Distinct(placement, node * slots, slots);
  }

  const Shape shape_;
  Rank& gpu_;
  uint8_t *weights_, *slots_, *gradients_, *slot_gradients_;
};

class ExchangeTest : public ::testing::TestWithParam<Shape> {};

TEST_P(ExchangeTest, IsBitExactAndMovesTheBytesOfTheFormula) {
  const Shape any = GetParam();
  simnccl::OnRanks(static_cast<int>(any.topology.devices()),
                   [&](int r, ncclComm_t comm, Rank& gpu) {
                     Shape shape = any;
                     shape.rank = static_cast<uint32_t>(r);
                     auto exchange = Exchange::Create(Driver(), CountingCalls(), comm, shape, 2);
                     ASSERT_TRUE(exchange.ok()) << exchange.status();
                     Member member(shape, &gpu);
                     for (uint64_t seed = 0; seed < 6; ++seed) {
                       const auto layer = static_cast<uint32_t>(seed % 2);
                       const Placement placement = SomePlacement(shape, seed);
                       ASSERT_TRUE((*exchange)->Place(layer, placement).ok());
                       member.Restore(exchange->get(), layer, placement);
                       member.Reduce(exchange->get(), layer, placement);
                     }
                   });
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExchangeTest,
                         ::testing::Values(Shape{{1, 1}, 0, 3, 4, 100, 2, Gradient::kFloat32},
                                           Shape{{1, 4}, 0, 5, 2, 1001, 1, Gradient::kBfloat16},
                                           Shape{{2, 2}, 0, 4, 3, 700, 2, Gradient::kFloat32},
                                           Shape{{3, 2}, 0, 2, 2, 333, 4, Gradient::kBfloat16},
                                           Shape{{2, 3}, 0, 7, 3, 5000, 2, Gradient::kFloat32},
                                           Shape{{4, 1}, 0, 4, 1, 64, 2, Gradient::kFloat32}));

TEST(ExchangeRefusalTest, ErrorsNameFieldAndRange) {
  simnccl::OnRanks(1, [](int, ncclComm_t comm, Rank& gpu) {
    Shape shape{{1, 1}, 0, 2, 2, 8, 2, Gradient::kFloat32};
    const auto create = [&](const Shape& s) {
      return Exchange::Create(Driver(), CountingCalls(), comm, s, 1).status().ToString();
    };
    Shape wrong = shape;
    wrong.topology.nodes = 2;
    EXPECT_THAT(create(wrong), HasSubstr("rank=0 of 1: must be rank 0 of 2"));
    wrong = shape;
    wrong.rank = 1;
    EXPECT_THAT(create(wrong), HasSubstr("rank=1: must be below devices=1"));
    wrong = shape;
    wrong.experts = 3;
    EXPECT_THAT(create(wrong), HasSubstr("experts=3: must be 1 to 2"));
    wrong = shape;
    wrong.elements = 0;
    EXPECT_THAT(create(wrong), HasSubstr("elements=0"));
    wrong.elements = uint64_t{1} << 60;
    EXPECT_THAT(create(wrong), HasSubstr("2 chunks of a device must have at most"));
    wrong = shape;
    wrong.topology = {1u << 31, 2};  // 0 in 32 bits
    EXPECT_THAT(create(wrong), HasSubstr("rank=0: must be below devices=4294967296"));

    auto exchange = Exchange::Create(Driver(), CountingCalls(), comm, shape, 1);
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    const auto place = [&](uint32_t layer, const Placement& p) {
      return (*exchange)->Place(layer, p).ToString();
    };
    EXPECT_THAT(place(1, {2, {0, 1}}), HasSubstr("layer=1: must be below layers=1"));
    EXPECT_THAT(place(0, {1, {0}}), HasSubstr("slots per device=1: must be 2"));
    EXPECT_THAT(place(0, {2, {1, 1}}), HasSubstr("expert 0 is on no device"));
    EXPECT_THAT(place(0, {}), HasSubstr("slots per device=0: must be 2"));
    const auto memory = reinterpret_cast<CUdeviceptr>(gpu.Alloc(1024));
    const auto stream = reinterpret_cast<CUstream>(gpu.stream());
    EXPECT_THAT((*exchange)->Restore(0, memory, memory, stream).ToString(),
                HasSubstr("layer 0 has no placement"));

    // A refused placement leaves the previous one in place.
    ASSERT_TRUE((*exchange)->Place(0, {2, {0, 1}}).ok());
    EXPECT_FALSE((*exchange)->Place(0, {2, {1, 1}}).ok());
    EXPECT_TRUE((*exchange)->Has(0, {2, {0, 1}}));
    EXPECT_FALSE((*exchange)->Has(0, {2, {1, 0}}));
    EXPECT_FALSE((*exchange)->Has(1, {2, {0, 1}}));
  });
}

// Groups that were started and not ended.
thread_local int open_groups = 0;

TEST(ExchangeRefusalTest, RejectsNonblockingCommunicator) {
  const Shape shape{{1, 1}, 0, 1, 1, 8, 2, Gradient::kFloat32};
  simnccl::OnRanks(1, [&](int, ncclComm_t comm, Rank&) {
    NcclCalls calls = CountingCalls();
    calls.CommCount = [](const ncclComm_t, int*) { return ncclInProgress; };
    EXPECT_THAT(Exchange::Create(Driver(), calls, comm, shape, 1).status().ToString(),
                HasSubstr("must be blocking"));
  });
}

TEST(ExchangeRefusalTest, EndsTheGroupAfterAFailedCall) {
  const Shape any{{2, 1}, 0, 2, 1, 8, 2, Gradient::kFloat32};
  simnccl::OnRanks(2, [&](int r, ncclComm_t comm, Rank& gpu) {
    NcclCalls calls = CountingCalls();
    calls.GroupStart = [] { return ++open_groups, ncclSuccess; };
    calls.GroupEnd = [] { return --open_groups, ncclInvalidUsage; };
    calls.Send = [](const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
      return ncclRemoteError;
    };
    Shape shape = any;
    shape.rank = static_cast<uint32_t>(r);
    auto exchange = Exchange::Create(Driver(), calls, comm, shape, 1);
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    ASSERT_TRUE((*exchange)->Place(0, {1, {1, 0}}).ok());
    const auto memory = reinterpret_cast<CUdeviceptr>(gpu.Alloc(1024));
    const absl::Status failed =
        (*exchange)->Restore(0, memory, memory + 512, reinterpret_cast<CUstream>(gpu.stream()));
    EXPECT_THAT(failed.ToString(), HasSubstr("ncclSend: "));
    EXPECT_EQ(open_groups, 0);
  });
}

}  // namespace
}  // namespace rewire::moe::fsep
