// Carries plans out: fills slots from everybody's shards and adds the slots' gradients to the
// shards', by NCCL on a stream. The communicator is for this alone: its ranks are the devices, it
// is blocking (config.blocking), and all ranks make the same calls in the same order. An object
// belongs to one thread and one context, which is current in every call and at the end.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/fsep/chunk_sum.h"
#include "reconfig/moe/fsep/device_memory.h"
#include "reconfig/moe/fsep/exchange_plan.h"
#include "reconfig/moe/fsep/nccl_calls.h"

namespace rewire::moe::fsep {

// Of the experts of every layer, and of this rank. An expert is padded to chunks of equal length.
struct Shape {
  Topology topology;
  uint32_t rank = 0;
  uint32_t experts = 0;
  uint32_t capacity = 0;  // slots of a device
  uint64_t elements = 0;  // of a chunk
  uint32_t weight_bytes = 2;
  Gradient gradient = Gradient::kFloat32;

  [[nodiscard]] uint64_t WeightChunk() const { return elements * weight_bytes; }
  [[nodiscard]] uint64_t GradientChunk() const { return elements * BytesOf(gradient); }
  // Of a rank's own chunks of one layer, and of all slots of a device.
  [[nodiscard]] uint64_t ShardChunks() const { return experts; }
  [[nodiscard]] uint64_t SlotChunks() const { return uint64_t{capacity} * topology.devices(); }
};

class Exchange {
 public:
  // Allocates all that it will need: the staging of one reduction and a table per layer. Refuses a
  // shape that is none and a communicator of another size or rank.
  static absl::StatusOr<std::unique_ptr<Exchange>> Create(const CudaDriver& driver,
                                                          const NcclCalls& nccl, ncclComm_t comm,
                                                          const Shape& shape, uint32_t layers);

  // From now on `layer` has this placement; on all ranks alike. Nothing of the layer is under way
  // on any stream. Refuses what Check() refuses, and leaves what was there.
  absl::Status Place(uint32_t layer, const Placement& placement);
  [[nodiscard]] bool Has(uint32_t layer, const Placement& placement) const {
    return layer < layers_.size() && layers_[layer].placement == placement;
  }

  // Whether there is one.
  [[nodiscard]] absl::Status CheckPlaced(uint32_t layer) const;

  // Fills `slots` (SlotChunks() chunks of weights; empty slots keep what they have) from the ranks'
  // `shards` (ShardChunks()), in the stream's order.
  absl::Status Restore(uint32_t layer, CUdeviceptr shards, CUdeviceptr slots, CUstream stream);
  // Adds the gradients in all ranks' `slots` to their owners' `shards`, in the order that
  // exchange_plan.h states, in the stream's order. The slots' contents are lost.
  absl::Status Reduce(uint32_t layer, CUdeviceptr slots, CUdeviceptr shards, CUstream stream);

  [[nodiscard]] const Shape& shape() const { return shape_; }

 private:
  struct Layer {
    Placement placement;  // of no slot: none yet
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
