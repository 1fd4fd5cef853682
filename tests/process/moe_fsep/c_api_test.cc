// Fully sharded experts through the C interface: four processes on two simulated nodes.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/moe-exec/crew.h"
#include "bench/moe-exec/sim_device.h"
#include "rewire/rewire_moe.h"
#include "tests/unit/moe/fsep/reference.h"

namespace rewire::moe::fsep {
namespace {

using bench::Crew;
using bench::SimDevice;
using testing::Each;
using testing::HasSubstr;

constexpr uint32_t kRanks = 4, kLayers = 3, kSteps = 2, kDepths = 3;
constexpr uint64_t kTokens = 300;  // floats for each peer
const std::vector<uint32_t> kVisits = {0, 1, 2, 2, 1, 0}, kBackward = {0, 0, 0, 1, 1, 1};

Shape ShapeOf(uint32_t rank, Gradient gradient) { return {{2, 2}, rank, 5, 2, 90, 3, gradient}; }

// Returns a different placement for every step and layer.
Placement PlacementOf(const Shape& shape, uint32_t step, uint32_t layer) {
  Placement placement{shape.capacity, {}};
  for (uint32_t s = 0; s < shape.SlotChunks(); ++s) {
    placement.slots.push_back((s + step + 2 * layer) % shape.experts);
  }
  return placement;
}
uint8_t WeightOf(const Shape& shape, uint32_t step, uint32_t layer, uint32_t expert, uint64_t i) {
  return WeightByte(step * kLayers + layer, expert, static_cast<uint32_t>(i / shape.WeightChunk()),
                    i % shape.WeightChunk());
}

SimDevice DeviceOf(uint32_t rank) {
  ::setenv("NCCL_HOSTID", rank < 2 ? "node0" : "node1", 1);
  return SimDevice(REWIRE_SIMGPU, static_cast<int>(rank % 2));
}

template <typename T>
T* At(CUdeviceptr p) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(p));
}
uint32_t ElementAt(Gradient type, const void* memory, uint64_t i) {
  return type == Gradient::kFloat32 ? static_cast<const uint32_t*>(memory)[i]
                                    : static_cast<const uint16_t*>(memory)[i];
}

// Both communicators' ids, from rank 0, at the start of the crew's memory, before the ranks'
// results.
struct Common {
  ncclUniqueId tokens, weights;
  uint64_t result[kRanks][kDepths];
};

// Returns the line that failed.
#define REQUIRE(condition) \
  if (!(condition))        \
  return fprintf(stderr, "%s: %s\n", #condition, rewireMoeLastError()), __LINE__ % 256

class Process {
 public:
  Process(Crew* crew, uint32_t rank, Gradient gradient)
      : crew_(*crew),
        common_(reinterpret_cast<Common*>(crew->memory())),
        shape_(ShapeOf(rank, gradient)),
        device_(DeviceOf(rank)),
        stream_(device_.MakeStream()) {
    for (uint32_t l = 0; l < kLayers; ++l) {
      weights_.push_back(At<void>(device_.Allocate(shape_.ShardChunks() * shape_.WeightChunk())));
      gradients_.push_back(
          At<void>(device_.Allocate(shape_.ShardChunks() * shape_.GradientChunk())));
    }
    tokens_ = device_.Allocate(kTokens * kRanks * sizeof(float));
    arrived_ = device_.Allocate(kTokens * kRanks * sizeof(float));
  }

  // Uses one object per depth, one after the other, over the same communicator.
  int Train() {
    REQUIRE(Join());
    for (uint32_t prefetch = 0; prefetch < kDepths; ++prefetch) {
      rewireFsep_t fsep = nullptr;
      const rewireFsepOptions_t options = Options(prefetch);
      REQUIRE(rewireFsepOpen(&options, &fsep) == rewireSuccess);
      Start();
      for (uint32_t step = 0; step < kSteps; ++step) {
        if (const int line = Step(fsep, step)) return line;
      }
      device_.Wait(stream_);
      REQUIRE(wrong_weights_ == 0);
      REQUIRE(WrongGradients() == 0);
      common_->result[shape_.rank][prefetch] = Result();
      REQUIRE(rewireFsepClose(fsep) == rewireSuccess);
    }
    return Leave();
  }

  // Every rank gets the same refusals and then continues to train; the last step is left
  // unfinished.
  int Refused() {
    REQUIRE(Join());
    rewireFsep_t fsep = nullptr;
    const auto refused = [&](rewireFsepOptions_t options, const std::string& why) {
      return rewireFsepOpen(&options, &fsep) == rewireInvalidArgument && Says(why);
    };
    rewireFsepOptions_t options = Options(kLayers + 1);
    REQUIRE(refused(options, "prefetch=4: must be 0 to 3"));
    options = Options(1);
    options.gradient_bytes = 3;
    REQUIRE(refused(options, "gradient_bytes=3"));
    options = Options(1);
    options.rank = (options.rank + 1) % kRanks;
    REQUIRE(refused(options, "must be rank"));
    options = Options(1);
    options.comm = nullptr;
    REQUIRE(refused(options, "options->comm is NULL"));
    options = Options(1);
    std::vector<void*> lacking = gradients_;
    lacking[1] = nullptr;
    options.gradients = lacking.data();
    REQUIRE(refused(options, "layer 1: weights and gradients must not be NULL"));

    options = Options(1);
    REQUIRE(rewireFsepOpen(&options, &fsep) == rewireSuccess);
    REQUIRE(Begin(fsep) == rewireInvalidUsage && Says("layer 0 has no placement"));
    Placement bad = PlacementOf(shape_, 0, 0);
    bad.slots[3] = shape_.experts;
    REQUIRE(rewireFsepPlace(fsep, 0, bad.slots.data()) == rewireInvalidArgument &&
            Says("expert=5: must be below experts=5"));
    bad.slots[3] = kEmptySlot;
    REQUIRE(rewireFsepPlace(fsep, 0, bad.slots.data()) == rewireInvalidArgument &&
            Says("expert 3 is on no device"));
    REQUIRE(rewireFsepPlace(fsep, kLayers, bad.slots.data()) == rewireInvalidArgument &&
            Says("layer=3: must be below layers=3"));
    REQUIRE(rewireFsepFinish(fsep, stream_) == rewireInvalidUsage && Says("Begin is due"));
    Start();
    if (const int line = Step(fsep, 0)) return line;
    const uint32_t none = 0;
    REQUIRE(rewireFsepBegin(fsep, 0, &none, &none, stream_) == rewireInvalidArgument);
    REQUIRE(Begin(fsep) == rewireSuccess);
    REQUIRE(rewireFsepPlace(fsep, 0, bad.slots.data()) == rewireInvalidUsage &&
            Says("BeginTokens is due"));
    REQUIRE(rewireFsepEndTokens(fsep, stream_) == rewireInvalidUsage);
    REQUIRE(rewireFsepBeginTokens(fsep, stream_) == rewireSuccess);
    REQUIRE(rewireFsepEndTokens(fsep, stream_) == rewireSuccess);
    REQUIRE(rewireFsepEndExperts(fsep, stream_) == rewireInvalidUsage);
    REQUIRE(rewireFsepClose(fsep) == rewireSuccess);  // while weights are being sent
    return Leave();
  }

  // Rank 3 does not begin its second step: its weights never arrive.
  int Silent() {
    REQUIRE(Join());
    rewireFsep_t fsep = nullptr;
    const rewireFsepOptions_t options = Options(1);
    REQUIRE(rewireFsepOpen(&options, &fsep) == rewireSuccess);
    Start();
    if (const int line = Step(fsep, 0)) return line;
    device_.Wait(stream_);
    REQUIRE(crew_.Meet(shape_.rank));  // the abort must affect only the second step
    if (shape_.rank < 3) {
      REQUIRE(Begin(fsep) == rewireSuccess);
      REQUIRE(abort_(comm_) == ncclSuccess);
      REQUIRE(rewireFsepClose(fsep) == rewireSuccess);
    }
    REQUIRE(crew_.Meet(shape_.rank));
    return 0;
  }

 private:
  bool Join() {
    if (shape_.rank == 0) common_->tokens = device_.MakeId();
    if (shape_.rank == 0) common_->weights = device_.MakeId();
    if (!crew_.Meet(shape_.rank)) return false;
    device_.Join(common_->tokens, kRanks, static_cast<int>(shape_.rank));
    void* const nccl = ::dlopen(REWIRE_SIMGPU "/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    abort_ = reinterpret_cast<ncclResult_t (*)(ncclComm_t)>(::dlsym(nccl, "ncclCommAbort"));
    const auto init = reinterpret_cast<ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int)>(
        ::dlsym(nccl, "ncclCommInitRank"));
    destroy_ = reinterpret_cast<ncclResult_t (*)(ncclComm_t)>(::dlsym(nccl, "ncclCommDestroy"));
    return init(&comm_, kRanks, common_->weights, static_cast<int>(shape_.rank)) == ncclSuccess;
  }
  int Leave() {
    REQUIRE(crew_.Meet(shape_.rank));
    REQUIRE(destroy_(comm_) == ncclSuccess);
    device_.Leave();
    return 0;
  }

  rewireFsepOptions_t Options(uint32_t prefetch) {
    rewireFsepOptions_t o{};
    o.size = sizeof o;
    o.comm = comm_;
    o.rank = shape_.rank;
    o.nodes = shape_.topology.nodes;
    o.devices_of_node = shape_.topology.per_node;
    o.layers = kLayers;
    o.experts = shape_.experts;
    o.slots = shape_.capacity;
    o.prefetch = prefetch;
    o.weight_bytes = shape_.weight_bytes;
    o.gradient_bytes = BytesOf(shape_.gradient);
    o.elements = shape_.elements;
    o.weights = weights_.data();
    o.gradients = gradients_.data();
    return o;
  }
  static bool Says(const std::string& what) {
    return std::string(rewireMoeLastError()).find(what) != std::string::npos;
  }

  void Start() {
    for (void* const g : gradients_) {
      std::memset(g, 0, shape_.ShardChunks() * shape_.GradientChunk());
    }
    for (uint64_t i = 0; i < kTokens * kRanks; ++i) {
      At<float>(tokens_)[i] = AnyFloat(shape_.rank, i);
    }
  }

  rewireResult_t Begin(rewireFsep_t fsep) {
    return rewireFsepBegin(fsep, static_cast<uint32_t>(kVisits.size()), kVisits.data(),
                           kBackward.data(), stream_);
  }

  int Step(rewireFsep_t fsep, uint32_t step) {
    for (uint32_t l = 0; l < kLayers; ++l) {
      const Placement placement = PlacementOf(shape_, step, l);
      REQUIRE(rewireFsepPlace(fsep, l, placement.slots.data()) == rewireSuccess);
    }
    device_.Launch(stream_, 0, [this, step] { WriteWeights(step); });
    REQUIRE(Begin(fsep) == rewireSuccess);
    for (size_t v = 0; v < kVisits.size(); ++v) {
      if (const int line = SendTokens(fsep)) return line;
      void *weights = nullptr, *gradients = nullptr;
      REQUIRE(rewireFsepBeginExperts(fsep, stream_, &weights, &gradients) == rewireSuccess);
      REQUIRE((gradients != nullptr) == (kBackward[v] != 0));
      device_.Launch(stream_, 0, [=, this] { Compute(step, kVisits[v], weights, gradients); });
      REQUIRE(rewireFsepEndExperts(fsep, stream_) == rewireSuccess);
      if (const int line = SendTokens(fsep)) return line;
    }
    REQUIRE(rewireFsepFinish(fsep, stream_) == rewireSuccess);
    return 0;
  }

  int SendTokens(rewireFsep_t fsep) {
    REQUIRE(rewireFsepBeginTokens(fsep, stream_) == rewireSuccess);
    const std::vector<size_t> each(kRanks, kTokens);
    device_.AllToAll(stream_, tokens_, each, arrived_, each);
    REQUIRE(rewireFsepEndTokens(fsep, stream_) == rewireSuccess);
    std::swap(tokens_, arrived_);
    return 0;
  }

  // Replaces the optimizer. Runs in the stream's order, as Compute().
  void WriteWeights(uint32_t step) {
    for (uint32_t l = 0; l < kLayers; ++l) {
      for (uint64_t i = 0; i < shape_.ShardChunks() * shape_.WeightChunk(); ++i) {
        static_cast<uint8_t*>(weights_[l])[i] =
            WeightOf(shape_, step, l, static_cast<uint32_t>(i / shape_.WeightChunk()),
                     shape_.rank * shape_.WeightChunk() + i % shape_.WeightChunk());
      }
    }
  }

  // Replaces the GEMMs.
  void Compute(uint32_t step, uint32_t layer, const void* weights, void* gradients) {
    const Placement placement = PlacementOf(shape_, step, layer);
    const uint64_t bytes = kRanks * shape_.WeightChunk();
    for (uint32_t s = 0; s < shape_.capacity; ++s) {
      const uint32_t expert = placement.slots[shape_.rank * shape_.capacity + s];
      for (uint64_t i = 0; i < bytes; ++i) {
        if (static_cast<const uint8_t*>(weights)[s * bytes + i] !=
            WeightOf(shape_, step, layer, expert, i)) {
          ++wrong_weights_;
        }
      }
      const uint64_t elements = kRanks * shape_.elements;
      for (uint64_t i = 0; gradients != nullptr && i < elements; ++i) {
        const uint32_t element = SlotElement(shape_, step * kLayers + layer, shape_.rank, s, i);
        if (shape_.gradient == Gradient::kFloat32) {
          static_cast<uint32_t*>(gradients)[s * elements + i] = element;
        } else {
          static_cast<uint16_t*>(gradients)[s * elements + i] = static_cast<uint16_t>(element);
        }
      }
    }
  }

  uint64_t WrongGradients() const {
    uint64_t wrong = 0;
    for (uint32_t l = 0; l < kLayers; ++l) {
      for (uint64_t i = 0; i < shape_.ShardChunks() * shape_.elements; ++i) {
        uint32_t expected = ToElement(shape_.gradient, 0);
        for (uint32_t step = 0; step < kSteps; ++step) {
          expected = ReducedElement(
              shape_, PlacementOf(shape_, step, l), static_cast<uint32_t>(i / shape_.elements),
              shape_.rank, i % shape_.elements, expected,
              [&](uint32_t device, uint32_t slot, uint64_t at) {
                return SlotElement(shape_, step * kLayers + l, device, slot, at);
              });
        }
        if (ElementAt(shape_.gradient, gradients_[l], i) != expected) ++wrong;
      }
    }
    return wrong;
  }

  uint64_t Result() const {
    uint64_t hash = 0;
    for (uint32_t l = 0; l < kLayers; ++l) {
      for (uint64_t i = 0; i < shape_.ShardChunks() * shape_.elements; ++i) {
        hash = MixWord(hash, ElementAt(shape_.gradient, gradients_[l], i));
      }
    }
    for (uint64_t i = 0; i < kTokens * kRanks; ++i) {
      hash = MixWord(hash, std::bit_cast<uint32_t>(At<float>(tokens_)[i]));
    }
    return hash;
  }

  Crew& crew_;
  Common* const common_;
  const Shape shape_;
  SimDevice device_;
  const CUstream stream_;
  ncclComm_t comm_ = nullptr;
  ncclResult_t (*destroy_)(ncclComm_t) = nullptr, (*abort_)(ncclComm_t) = nullptr;
  std::vector<void*> weights_, gradients_;
  CUdeviceptr tokens_ = 0, arrived_ = 0;
  uint64_t wrong_weights_ = 0;  // owned by the stream's thread until the stream is idle
};

class FsepTest : public testing::Test {
 protected:
  FsepTest() {
    ::setenv("REWIRE_CUDA_LIBRARY", REWIRE_SIMGPU "/libcuda.so.1", 1);
    ::setenv("SIMGPU_DEVICES", "2", 1);
  }
  std::vector<int> Run(Gradient gradient, int (Process::*body)()) {
    return crew_.Run([&](uint32_t rank) { return (Process(&crew_, rank, gradient).*body)(); },
                     seconds(60));
  }
  Crew crew_{kRanks, sizeof(Common)};
};

TEST_F(FsepTest, ResultsAreExactAndTheSameAtEveryDepth) {
  for (const Gradient gradient : {Gradient::kFloat32, Gradient::kBfloat16}) {
    ASSERT_THAT(Run(gradient, &Process::Train), Each(0));
    const auto& result = reinterpret_cast<const Common*>(crew_.memory())->result;
    for (const auto& depths : result) EXPECT_THAT(depths, Each(depths[0]));
    EXPECT_NE(result[0][0], result[1][0]);
  }
}

TEST_F(FsepTest, RefusesInvalidCallsAndContinues) {
  EXPECT_THAT(Run(Gradient::kFloat32, &Process::Refused), Each(0));
}

TEST_F(FsepTest, OtherRanksAbortAndCloseIfARankIsSilent) {
  EXPECT_THAT(Run(Gradient::kFloat32, &Process::Silent), Each(0));
}

TEST_F(FsepTest, ErrorsNameNullsAndSizes) {
  rewireFsepOptions_t o{};
  rewireFsep_t fsep = nullptr;
  EXPECT_EQ(rewireFsepOpen(nullptr, &fsep), rewireInvalidArgument);
  o.size = 8;
  EXPECT_EQ(rewireFsepOpen(&o, &fsep), rewireInvalidArgument);
  EXPECT_THAT(rewireMoeLastError(), HasSubstr("sizeof(rewireFsepOptions_t)"));
  EXPECT_EQ(rewireFsepFinish(nullptr, nullptr), rewireInvalidArgument);
  EXPECT_THAT(rewireMoeLastError(), HasSubstr("rewireFsepFinish: fsep is NULL"));
  EXPECT_EQ(rewireFsepClose(nullptr), rewireInvalidArgument);
}

TEST_F(FsepTest, ErrorNamesMissingNccl) {
  void* memory = &crew_;
  rewireFsepOptions_t o{};
  o.size = sizeof o;
  o.comm = memory;
  o.layers = 1;
  o.gradient_bytes = 4;
  o.weights = o.gradients = &memory;
  rewireFsep_t fsep = nullptr;
  EXPECT_EQ(rewireFsepOpen(&o, &fsep), rewireInvalidUsage);
  EXPECT_THAT(rewireMoeLastError(), HasSubstr("NCCL is not loaded"));
}

}  // namespace
}  // namespace rewire::moe::fsep
