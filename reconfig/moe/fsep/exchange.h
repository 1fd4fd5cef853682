// Executes exchange plans with NCCL on a stream: fills slots from all ranks' shards, and adds the
// gradients in the slots to the gradients in the shards. The communicator must have no other use,
// must be blocking (config.blocking), and must outlive the exchange. Its ranks are the devices, and
// all ranks make the same calls in the same order. Owned by the creating thread; Create()'s context
// must be current in every call and in the destructor, when no work of the exchange may be in
// progress.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/moe/fsep/chunk_sum.h"
#include "reconfig/moe/fsep/exchange_plan.h"

namespace rewire::moe::fsep {

// The NCCL functions that the exchange calls. Rewire does not link against NCCL: the caller
// supplies the functions, or OfProcess() finds them. All pointers must be set. Thread-compatible.
struct NcclCalls {
  // Finds the functions that the program's own calls reach. They are global symbols (of a preloaded
  // shim or a linked library), or those of a libnccl.so.2 that another library, for example a
  // Python package, has loaded for itself. Does not load a library. Thread-safe.
  static absl::StatusOr<NcclCalls> OfProcess();

  const char* (*GetErrorString)(ncclResult_t) = nullptr;
  ncclResult_t (*CommCount)(const ncclComm_t, int*) = nullptr;
  ncclResult_t (*CommUserRank)(const ncclComm_t, int*) = nullptr;
  ncclResult_t (*GroupStart)() = nullptr;
  ncclResult_t (*GroupEnd)() = nullptr;
  ncclResult_t (*Send)(const void*, size_t, ncclDataType_t, int, ncclComm_t,
                       cudaStream_t) = nullptr;
  ncclResult_t (*Recv)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = nullptr;
};

// Owns memory of the current context's device and frees the memory in the destructor, when the
// context must be current. Thread-compatible.
class DeviceMemory {
 public:
  // An empty object has the address 0.
  DeviceMemory() = default;
  static absl::StatusOr<DeviceMemory> Allocate(const CudaDriver& driver, uint64_t bytes) {
    DeviceMemory memory;
    memory.driver_ = &driver;
    const CUresult result = driver.MemAlloc(&memory.address_, bytes);
    if (result == CUDA_SUCCESS) return memory;
    memory.address_ = 0;
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes for sharded experts: ", driver.Describe("cuMemAlloc", result)));
  }
  ~DeviceMemory() {
    if (address_ != 0) driver_->MemFree(address_);
  }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    return *this;
  }

  [[nodiscard]] CUdeviceptr address() const { return address_; }

 private:
  const CudaDriver* driver_ = nullptr;
  CUdeviceptr address_ = 0;
};

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
  // may be in progress on any stream. Fails without effect on an unknown layer, another capacity,
  // and a placement that moe::Check() rejects. If the copy of the tables to the device fails, the
  // layer has no placement afterwards.
  absl::Status Place(uint32_t layer, const Placement& placement);
  [[nodiscard]] bool Has(uint32_t layer, const Placement& placement) const {
    return CheckPlaced(layer).ok() && layers_[layer].placement == placement;
  }

  // Returns an error if the layer has no placement.
  [[nodiscard]] absl::Status CheckPlaced(uint32_t layer) const;

  // Fills `slots` from all ranks' `shards` (ShardChunks() chunks), in stream order. `slots` has
  // room for SlotChunks() chunks of weights; empty slots are not changed.
  absl::Status Restore(uint32_t layer, CUdeviceptr shards, CUdeviceptr slots, CUstream stream);
  // Adds the gradients in all ranks' `slots` to their owners' `shards`, in stream order.
  // exchange_plan.h states the order of addition. The contents of `slots` are undefined afterwards.
  // All layers share one staging buffer: use one stream for all of them.
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
