// The device memory that a process lends to the balancing of a node, allocated once, and what it
// sees of the others'. As a helper it gets experts and tokens here; as an owner it gets results
// back. Words that streams wait for lie in the waiting side's memory. Any thread; the context in
// which Open() was called must be current.
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

  // The parts of a process's memory, at addresses that are valid here.
  struct Side {
    CUdeviceptr base = 0;
    const NodeMemory* layout = nullptr;

    // What others send.
    [[nodiscard]] CUdeviceptr weights(uint32_t slot) const;
    [[nodiscard]] CUdeviceptr tokens(uint32_t row) const;
    [[nodiscard]] CUdeviceptr errors(uint32_t row) const;  // the outputs' gradients
    // What comes back.
    [[nodiscard]] CUdeviceptr back(uint32_t row) const;
    [[nodiscard]] CUdeviceptr back_grads(uint32_t slot) const;
    // Each holds the last round for which it has been written.
    [[nodiscard]] CUdeviceptr weights_there(uint32_t slot) const;
    [[nodiscard]] CUdeviceptr tokens_there(uint32_t slot) const;
    [[nodiscard]] CUdeviceptr back_there(uint32_t slot) const;
    [[nodiscard]] CUdeviceptr used(uint32_t rank) const;  // by that rank, of what this side sent
    // For the trial of the path.
    [[nodiscard]] CUdeviceptr trial(uint32_t rank) const;
  };
  [[nodiscard]] Side own() const { return {memory_, this}; }
  [[nodiscard]] Side peer(uint32_t rank) const { return {peers_[rank], this}; }

  // What this process computes for others, before it is sent back.
  [[nodiscard]] CUdeviceptr results(uint32_t row) const;
  [[nodiscard]] CUdeviceptr grads(uint32_t slot) const;
  // All words, for whoever has to let go of every stream that waits.
  [[nodiscard]] CUdeviceptr words() const { return memory_; }
  [[nodiscard]] static uint64_t word_bytes();
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  NodeMemory(const CudaDriver& cuda, const Shape& shape);

  const CudaDriver& cuda_;
  const Shape shape_;
  uint64_t weights_ = 0, tokens_ = 0, errors_ = 0, back_ = 0, back_grads_ = 0, results_ = 0,
           grads_ = 0, bytes_ = 0;  // offsets, and their end
  CUdeviceptr memory_ = 0;
  CUipcMemHandle handle_{};
  std::vector<CUdeviceptr> peers_;
};

}  // namespace rewire::moe
