// Executes exchange plans with NCCL on a stream: fills slots from all ranks' shards and adds the
// slots' gradients to the shards'. The communicator is only for this use. Its ranks are the
// devices, it is blocking (config.blocking), and all ranks make the same calls in the same order.
// Owned by the creating thread; Create()'s context must be current in every call and in the
// destructor.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/fsep/chunk_sum.h"
#include "reconfig/moe/fsep/device_memory.h"
#include "reconfig/moe/fsep/exchange_plan.h"
#include "reconfig/moe/fsep/nccl_calls.h"

namespace rewire::moe::fsep {

// Describes the experts of every layer and this rank. Experts are padded to chunks of equal length.
struct Shape {
  Topology topology;
  uint32_t rank = 0;
  uint32_t experts = 0;
  uint32_t capacity = 0;  // slots of one device
  uint64_t elements = 0;  // elements of one chunk
  uint32_t weight_bytes = 2;
  Gradient gradient = Gradient::kFloat32;

  [[nodiscard]] uint64_t WeightChunk() const { return elements * weight_bytes; }
  [[nodiscard]] uint64_t GradientChunk() const { return elements * BytesOf(gradient); }
  // Chunks that a rank owns of one layer, and chunks in all slots of a device.
  [[nodiscard]] uint64_t ShardChunks() const { return experts; }
  [[nodiscard]] uint64_t SlotChunks() const { return uint64_t{capacity} * topology.devices(); }
};

class Exchange {
 public:
  // Allocates all memory: the staging of one reduction and a table per layer. Fails on an invalid
  // shape and on a communicator of another size or rank.
  static absl::StatusOr<std::unique_ptr<Exchange>> Create(const CudaDriver& driver,
                                                          const NcclCalls& nccl, ncclComm_t comm,
                                                          const Shape& shape, uint32_t layers);

  // Sets the placement of `layer`; all ranks must set the same placement. No operation of the layer
  // may be in progress on any stream. Fails on what Check() rejects, without effect.
  absl::Status Place(uint32_t layer, const Placement& placement);
  [[nodiscard]] bool Has(uint32_t layer, const Placement& placement) const {
    return layer < layers_.size() && layers_[layer].placement == placement;
  }

  // Returns an error if the layer has no placement.
  [[nodiscard]] absl::Status CheckPlaced(uint32_t layer) const;

  // Fills `slots` from all ranks' `shards` (ShardChunks() chunks), in stream order. `slots` has
  // room for SlotChunks() chunks of weights; empty slots are not changed.
  absl::Status Restore(uint32_t layer, CUdeviceptr shards, CUdeviceptr slots, CUstream stream);
  // Adds the gradients in all ranks' `slots` to their owners' `shards`, in stream order.
  // exchange_plan.h states the order of addition. The contents of `slots` are undefined afterwards.
  absl::Status Reduce(uint32_t layer, CUdeviceptr slots, CUdeviceptr shards, CUstream stream);

  [[nodiscard]] const Shape& shape() const { return shape_; }

 private:
  struct Layer {
    Placement placement;  // without slots: no placement yet
    ExchangePlan plan;
    DeviceMemory sums;                   // the tables of the reduction's steps, one after the other
    std::vector<uint64_t> table_begins;  // in words, by step
  };
  struct Buffers {
    MemoryBases bases;
    uint64_t chunk_bytes = 0;
  };

  Exchange(const CudaDriver& driver, const NcclCalls& nccl, ncclComm_t comm, const Shape& shape)
      : driver_(driver), nccl_(nccl), comm_(comm), shape_(shape) {}

  absl::Status CheckCommunicator() const;
  absl::Status RunCopies(const Step& step, const Buffers& buffers, CUstream stream) const;
  absl::Status RunMessages(const Step& step, const Buffers& buffers, CUstream stream) const;
  absl::Status Check(const char* call, ncclResult_t result) const;

  const CudaDriver& driver_;
  const NcclCalls nccl_;
  const ncclComm_t comm_;
  const Shape shape_;
  std::unique_ptr<ChunkSum> sum_;
  DeviceMemory staging_;
  std::vector<Layer> layers_;
};

}  // namespace rewire::moe::fsep
