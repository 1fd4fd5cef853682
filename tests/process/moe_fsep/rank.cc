// One rank of a toy model of three mixture-of-experts layers on the simulated GPU, for the tests of
// this folder. Arguments: rank, nodes, devices of a node, prefetch depth (-1: without the schedule,
// everything on one stream), a folder. The rank checks restored weights and reduced gradients to
// the bit. It writes its gradients and tokens to <folder>/<rank>.bytes and the trace to
// <folder>/<rank>.json. Exits with 0 if all checks passed.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <thread>

#include "reconfig/moe/fsep/schedule.h"
#include "tests/simgpu/nccl/api.h"
#include "tests/unit/moe/fsep/reference.h"

namespace rewire::moe::fsep {
namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kSteps = 3;
constexpr uint64_t kTokens = 3000;  // floats for each peer

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}
void Need(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}
void Need(CUresult result) {
  if (result != CUDA_SUCCESS) Die("driver: " + std::to_string(result));
}
void Need(ncclResult_t result) {
  if (result != ncclSuccess) Die("nccl: " + std::to_string(result));
}

// Rank 0 writes the two communicators' ids to the folder.
std::array<ncclUniqueId, 2> Ids(uint32_t rank, const std::string& folder) {
  std::array<ncclUniqueId, 2> ids;
  const std::string path = folder + "/ids";
  if (rank == 0) {
    for (ncclUniqueId& id : ids) Need(ncclGetUniqueId(&id));
    std::ofstream(path + ".new", std::ios::binary)
        .write(reinterpret_cast<const char*>(&ids), sizeof ids);
    std::filesystem::rename(path + ".new", path);
    return ids;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!std::filesystem::exists(path)) {
    if (std::chrono::steady_clock::now() > deadline) Die("no ids");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&ids), sizeof ids);
  return ids;
}

// Returns the same placement on every rank, and a different one for every step and layer.
Placement PlacementOf(const Shape& shape, uint32_t step, uint32_t layer) {
  std::mt19937_64 random(step * 100 + layer);
  Placement placement{shape.capacity, {}};
  for (uint32_t s = 0; s < shape.capacity * shape.topology.devices(); ++s) {
    placement.slots.push_back(s < shape.experts ? s : random() % shape.experts);
  }
  std::shuffle(placement.slots.begin(), placement.slots.end(), random);
  return placement;
}

// Weights change after every step.
uint8_t WeightOf(const Shape& shape, uint32_t step, uint32_t layer, uint32_t expert,
                 uint64_t byte) {
  return WeightByte(step * 100 + layer, expert, static_cast<uint32_t>(byte / shape.WeightChunk()),
                    byte % shape.WeightChunk());
}

// A gradient depends on its weight.
uint32_t GradientOf(const Shape& shape, uint32_t step, uint32_t layer, uint32_t device,
                    uint32_t slot, uint64_t i, uint8_t weight) {
  const uint64_t key = uint64_t{step * 100 + layer} << 32 | device << 8 | slot;
  return ToElement(shape.gradient, AnyFloat(key, i) * (static_cast<float>(weight) - 127.5f));
}

class Toy {
 public:
  Toy(const Shape& shape, int prefetch, const std::string& folder)
      : shape_(shape), prefetch_(prefetch), folder_(folder) {
    std::string error;
    driver_ = CudaDriver::Get(&error);
    if (driver_ == nullptr) Die(error);
    CUcontext context = nullptr;
    Need(driver_->Init(0));
    Need(driver_->DevicePrimaryCtxRetain(
        &context, static_cast<CUdevice>(shape.rank % shape.topology.per_node)));
    Need(driver_->CtxSetCurrent(context));
    Need(driver_->StreamCreate(&compute_, CU_STREAM_NON_BLOCKING));
    Need(driver_->StreamCreate(&wire_, CU_STREAM_NON_BLOCKING));
    Need(driver_->EventCreate(&ready_, CU_EVENT_DISABLE_TIMING));
    const auto ids = Ids(shape.rank, folder);
    const auto ranks = static_cast<int>(shape.topology.devices());
    Need(ncclCommInitRank(&weights_comm_, ranks, ids[0], static_cast<int>(shape.rank)));
    Need(ncclCommInitRank(&tokens_comm_, ranks, ids[1], static_cast<int>(shape.rank)));
    for (uint32_t l = 0; l < kLayers; ++l) {
      shards_.push_back({Make(shape.ShardChunks() * shape.WeightChunk()),
                         Make(shape.ShardChunks() * shape.GradientChunk())});
    }
    tokens_ = Make(kTokens * ranks * sizeof(float));
    arrived_ = Make(kTokens * ranks * sizeof(float));
    for (uint64_t i = 0; i < kTokens * ranks; ++i) Floats(tokens_)[i] = AnyFloat(shape.rank, i);
  }

  void Run() {
    const NcclCalls calls{ncclGetErrorString, ncclCommCount, ncclCommUserRank, ncclGroupStart,
                          ncclGroupEnd,       ncclSend,      ncclRecv};
    auto exchange = Exchange::Create(*driver_, calls, weights_comm_, shape_, kLayers);
    Need(exchange.status());
    auto trace = StreamTrace::Create(*driver_, compute_);
    Need(trace.status());
    if (prefetch_ >= 0) {
      auto schedule = Schedule::Create(*driver_, *std::move(exchange), shards_,
                                       static_cast<uint32_t>(prefetch_), trace->get());
      Need(schedule.status());
      for (uint32_t step = 0; step < kSteps; ++step) RunScheduled(schedule->get(), step);
      Need(driver_->StreamSynchronize(wire_));
      Need(driver_->StreamSynchronize(compute_));
      const auto spans = (*trace)->Take();
      Need(spans.status());
      std::ofstream(Path(".json")) << TraceJson(*spans, shape_.rank);
      if (OverlapUs(*spans, Track::kTokens, Track::kWeights) > 0) Die("weights beside tokens");
    } else {
      RunPlain(exchange->get());
    }
    CheckGradients();
    if (wrong_weights_ > 0) Die(std::to_string(wrong_weights_) + " wrong bytes of weights");
    Need(ncclCommDestroy(tokens_comm_));
    Need(ncclCommDestroy(weights_comm_));
  }

 private:
  struct Work {
    Toy* toy;
    uint32_t step, layer;
    SlotMemory slots;
    Placement placement;
  };

  // The memory is never freed, because the process ends.
  CUdeviceptr Make(uint64_t bytes) {
    CUdeviceptr memory = 0;
    Need(driver_->MemAlloc(&memory, bytes));
    std::fill_n(Bytes(memory), bytes, 0);
    return memory;
  }
  static uint8_t* Bytes(CUdeviceptr p) { return reinterpret_cast<uint8_t*>(p); }
  static float* Floats(CUdeviceptr p) { return reinterpret_cast<float*>(p); }
  std::string Path(const std::string& end) const {
    return folder_ + "/" + std::to_string(shape_.rank) + end;
  }
  uint64_t SlotElements() const { return shape_.topology.devices() * shape_.elements; }

  void Launch(CUstream stream, const Work& work, CUhostFn function) {
    work_.push_back(work);
    Need(driver_->LaunchHostFunc(stream, function, &work_.back()));
  }

  // Replaces the optimizer: this rank's chunks of the weights become the step's.
  static void WriteWeights(void* argument) {
    const Work& work = *static_cast<Work*>(argument);
    const Shape& shape = work.toy->shape_;
    for (uint32_t l = 0; l < kLayers; ++l) {
      uint8_t* const shards = Bytes(work.toy->shards_[l].weights);
      for (uint64_t i = 0; i < shape.ShardChunks() * shape.WeightChunk(); ++i) {
        const auto expert = static_cast<uint32_t>(i / shape.WeightChunk());
        const uint64_t byte = shape.rank * shape.WeightChunk() + i % shape.WeightChunk();
        shards[i] = WeightOf(shape, work.step, l, expert, byte);
      }
    }
  }

  // Replaces the GEMMs.
  static void Compute(void* argument) {
    const Work& work = *static_cast<Work*>(argument);
    Toy& toy = *work.toy;
    const Shape& shape = toy.shape_;
    const uint64_t elements = toy.SlotElements();
    for (uint32_t s = 0; s < shape.capacity; ++s) {
      const uint32_t expert = work.placement.slots[shape.rank * shape.capacity + s];
      const uint8_t* const weights = Bytes(work.slots.weights) + s * elements * shape.weight_bytes;
      for (uint64_t i = 0; i < elements * shape.weight_bytes; ++i) {
        if (weights[i] != WeightOf(shape, work.step, work.layer, expert, i)) ++toy.wrong_weights_;
      }
      float* const tokens = Floats(toy.tokens_);
      for (uint64_t i = 0; i < kTokens * shape.topology.devices(); ++i) {
        tokens[i] = tokens[i] * 0.5f + static_cast<float>(weights[i % elements]);
      }
    }
  }

  static void ComputeGradients(void* argument) {
    const Work& work = *static_cast<Work*>(argument);
    const Shape& shape = work.toy->shape_;
    const uint64_t elements = shape.capacity * work.toy->SlotElements();
    const uint8_t* const weights = Bytes(work.slots.weights);
    auto* const gradients = reinterpret_cast<uint32_t*>(work.slots.gradients);
    // The GEMM takes longer than the tokens: code that does not wait for it reads old gradients.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (uint64_t i = 0; i < elements; ++i) {
      const uint64_t at = i % work.toy->SlotElements();
      const auto slot = static_cast<uint32_t>(i / work.toy->SlotElements());
      gradients[i] = GradientOf(shape, work.step, work.layer, shape.rank, slot, at,
                                weights[i * shape.weight_bytes]);
    }
  }

  // Sends block b to peer b, into another buffer, which then holds the tokens.
  void SendTokens(CUstream stream) {
    const auto nccl_stream = reinterpret_cast<cudaStream_t>(stream);
    Need(ncclGroupStart());
    for (uint32_t peer = 0; peer < shape_.topology.devices(); ++peer) {
      Need(ncclSend(Floats(tokens_) + peer * kTokens, kTokens, ncclFloat32, static_cast<int>(peer),
                    tokens_comm_, nccl_stream));
      Need(ncclRecv(Floats(arrived_) + peer * kTokens, kTokens, ncclFloat32, static_cast<int>(peer),
                    tokens_comm_, nccl_stream));
    }
    Need(ncclGroupEnd());
    const uint64_t bytes = kTokens * shape_.topology.devices() * sizeof(float);
    Need(driver_->MemcpyDtoDAsync(tokens_, arrived_, bytes, stream));
  }
  void Order(CUstream first, CUstream then) {
    Need(driver_->EventRecord(ready_, first));
    Need(driver_->StreamWaitEvent(then, ready_, 0));
  }

  void RunScheduled(Schedule* schedule, uint32_t step) {
    for (uint32_t l = 0; l < kLayers; ++l) {
      Need(schedule->Place(l, PlacementOf(shape_, step, l), seconds(60)));
    }
    Launch(compute_, {this, step, 0, {}, {}}, WriteWeights);
    const std::vector<Visit> visits = ForwardAndBackward(kLayers);
    Need(schedule->Begin(visits, compute_));
    for (const Visit& v : visits) {
      Order(compute_, wire_);
      Need(schedule->BeginTokens(wire_));
      SendTokens(wire_);
      Need(schedule->EndTokens(wire_));
      const auto slots = schedule->BeginExperts(compute_);
      Need(slots.status());
      const Work work{this, step, v.layer, *slots, PlacementOf(shape_, step, v.layer)};
      Launch(compute_, work, Compute);
      Order(compute_, wire_);
      // Gradients of weights are not tokens: they are computed while the tokens are sent back.
      if (v.gradients) Launch(compute_, work, ComputeGradients);
      Need(schedule->EndExperts(compute_));
      Need(schedule->BeginTokens(wire_));
      SendTokens(wire_);
      Need(schedule->EndTokens(wire_));
      Order(wire_, compute_);
    }
    Need(schedule->Finish(compute_));
  }

  void RunPlain(Exchange* exchange) {
    const SlotMemory slots{Make(shape_.SlotChunks() * shape_.WeightChunk()),
                           Make(shape_.SlotChunks() * shape_.GradientChunk())};
    for (uint32_t step = 0; step < kSteps; ++step) {
      for (uint32_t l = 0; l < kLayers; ++l) {
        Need(exchange->Place(l, PlacementOf(shape_, step, l)));
      }
      Launch(compute_, {this, step, 0, {}, {}}, WriteWeights);
      for (const Visit& v : ForwardAndBackward(kLayers)) {
        Need(exchange->Restore(v.layer, shards_[v.layer].weights, slots.weights, compute_));
        SendTokens(compute_);
        const Work work{this, step, v.layer, slots, PlacementOf(shape_, step, v.layer)};
        Launch(compute_, work, Compute);
        if (v.gradients) Launch(compute_, work, ComputeGradients);
        SendTokens(compute_);
        if (!v.gradients) continue;
        Need(exchange->Reduce(v.layer, slots.gradients, shards_[v.layer].gradients, compute_));
      }
      Need(driver_->StreamSynchronize(compute_));
    }
  }

  void CheckGradients() {
    std::ofstream out(Path(".bytes"), std::ios::binary);
    const auto write = [&](CUdeviceptr from, uint64_t bytes) {
      out.write(reinterpret_cast<const char*>(Bytes(from)), static_cast<std::streamsize>(bytes));
    };
    for (uint32_t l = 0; l < kLayers; ++l) {
      const auto* const gradients = reinterpret_cast<uint32_t*>(shards_[l].gradients);
      for (uint64_t i = 0; i < shape_.ShardChunks() * shape_.elements; ++i) {
        const auto expert = static_cast<uint32_t>(i / shape_.elements);
        uint32_t expected = ToElement(shape_.gradient, 0);
        for (uint32_t step = 0; step < kSteps; ++step) {
          expected = ReducedElement(
              shape_, PlacementOf(shape_, step, l), expert, shape_.rank, i % shape_.elements,
              expected, [&](uint32_t device, uint32_t slot, uint64_t at) {
                return GradientOf(shape_, step, l, device, slot, at,
                                  WeightOf(shape_, step, l, expert, at * shape_.weight_bytes));
              });
        }
        if (gradients[i] != expected) Die("wrong gradients of layer " + std::to_string(l));
      }
      write(shards_[l].gradients, shape_.ShardChunks() * shape_.GradientChunk());
    }
    write(tokens_, kTokens * shape_.topology.devices() * sizeof(float));
  }

  const Shape shape_;
  const int prefetch_;
  const std::string folder_;
  const CudaDriver* driver_ = nullptr;
  CUstream compute_ = nullptr, wire_ = nullptr;
  CUevent ready_ = nullptr;
  ncclComm_t weights_comm_ = nullptr, tokens_comm_ = nullptr;
  std::vector<LayerShards> shards_;
  CUdeviceptr tokens_ = 0, arrived_ = 0;
  std::list<Work> work_;        // the driver holds pointers to it
  uint64_t wrong_weights_ = 0;  // owned by the stream's thread until the streams are idle
};

}  // namespace
}  // namespace rewire::moe::fsep

int main(int argc, char** argv) {
  using namespace rewire::moe::fsep;
  if (argc != 6) Die("rank nodes devices-per-node prefetch folder");
  const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  const Shape shape{{number(2), number(3)}, number(1), 5, 2, 700, 2, Gradient::kFloat32};
  Toy(shape, std::atoi(argv[4]), argv[5]).Run();
  return 0;
}
