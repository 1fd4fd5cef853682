#include "tests/simgpu/nccl/operation_pool.h"

#include <sys/mman.h>

namespace simnccl {

namespace {

constexpr size_t kBytes = 67'600'000;  // NCCL 2.28.9, NCCL_MAX_OPS 2048

}  // namespace

OperationPool::~OperationPool() {
  if (memory_ != nullptr) ::munmap(memory_, kBytes);
}

void OperationPool::Need() {
  if (memory_ != nullptr) return;
  // The system clears the memory: this is the cheapest way to allocate and clear, and sanitizers do
  // not instrument it.
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory != MAP_FAILED) memory_ = memory;
}

}  // namespace simnccl
