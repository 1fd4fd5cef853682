// Device memory that a process lends to the balancing of a node, allocated once, and mappings of
// the other processes' memory. A helper receives experts and tokens there; an owner receives
// results. The words that a stream waits for are in the memory of the waiting process.
// Thread-compatible; the context in which Allocate() was called must be current.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/moe/exec/shape.h"

namespace rewire::moe {

class NodeMemory {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<NodeMemory>> Allocate(const CudaDriver& cuda,
                                                                            const Shape& shape);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  [[nodiscard]] const CUipcMemHandle& handle() const { return handle_; }
  // Maps the memory of another process.
  [[nodiscard]] absl::Status Open(uint32_t rank, const CUipcMemHandle& memory);

  // The parts of a process's memory, at addresses that are valid in this process.
  struct Side {
    CUdeviceptr base = 0;
    const NodeMemory* layout = nullptr;

    // Data from other processes.
    [[nodiscard]] CUdeviceptr weights(uint32_t slot) const;
    [[nodiscard]] CUdeviceptr tokens(uint32_t row) const;
    [[nodiscard]] CUdeviceptr errors(uint32_t row) const;  // gradients of the outputs
    // Results that come back from helpers.
    [[nodiscard]] CUdeviceptr back(uint32_t row) const;
    [[nodiscard]] CUdeviceptr back_grads(uint32_t slot) const;
    // Each word holds the last round for which it was written.
    [[nodiscard]] CUdeviceptr weights_there(uint32_t slot) const;
    [[nodiscard]] CUdeviceptr tokens_there(uint32_t slot) const;
    [[nodiscard]] CUdeviceptr back_there(uint32_t slot) const;
    // last round in which `rank` used data of this side
    [[nodiscard]] CUdeviceptr used(uint32_t rank) const;
    // Memory for the test of the path.
    [[nodiscard]] CUdeviceptr trial(uint32_t rank) const;
  };
  [[nodiscard]] Side own() const { return {memory_, this}; }
  [[nodiscard]] Side peer(uint32_t rank) const { return {peers_[rank], this}; }

  // Results that this process computed for others, before they are sent back.
  [[nodiscard]] CUdeviceptr results(uint32_t row) const;
  [[nodiscard]] CUdeviceptr grads(uint32_t slot) const;
  // Returns the first word of all words; writing them releases every waiting stream.
  [[nodiscard]] CUdeviceptr words() const { return memory_; }
  [[nodiscard]] static uint64_t word_bytes();
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  NodeMemory(const CudaDriver& cuda, const Shape& shape);

  const CudaDriver& cuda_;
  const Shape shape_;
  uint64_t weights_ = 0, tokens_ = 0, errors_ = 0, back_ = 0, back_grads_ = 0, results_ = 0,
           grads_ = 0, bytes_ = 0;  // offsets, and the end
  CUdeviceptr memory_ = 0;
  CUipcMemHandle handle_{};
  std::vector<CUdeviceptr> peers_;
};

}  // namespace rewire::moe
