// The arithmetic of a device function on runs of elements. Signed and unsigned integers share
// NCCL's functions; the operand tells them apart (hostToDevRedOp in src/enqueue.cc:2245 of 2.28.9).
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/nccl_types.h"
#include "tests/nccl_host/kernels/function.h"
#include "tests/simgpu/nccl/reduction.h"

namespace nccl_host {

class Elements {
 public:
  // `operand`: the bits that the host computed for the operator.
  Elements(const Function& function, uint64_t operand);

  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] bool has_pre() const { return op_.scaled; }
  [[nodiscard]] bool has_post() const { return op_.divide_by > 1; }
  // Transforms this rank's input before it is combined.
  void Pre(char* elements, size_t count) const;
  // target = target `op` source
  void Combine(char* target, const char* source, size_t count) const;
  // Transforms the result of all ranks.
  void Post(char* elements, size_t count) const;

 private:
  ncclDataType_t type_;
  simnccl::Operator op_;
  size_t bytes_;
};

}  // namespace nccl_host
