// Reading and writing state where it lies: host memory directly, device memory by copies on a
// stream of our own of the lowest priority, through pinned staging. An object belongs to one
// thread; any number of threads may each have one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "reconfig/abi/cuda_types.h"

namespace rewire {

struct CudaDriver;

enum class MemoryKind : uint8_t { kHost = 0, kDevice = 1 };

// A place in memory that Rewire may read or write.
struct StatePlace {
  MemoryKind kind = MemoryKind::kHost;
  char* data = nullptr;
  CUcontext context = nullptr;  // of device memory
  [[nodiscard]] StatePlace At(uint64_t bytes) const { return {kind, data + bytes, context}; }
};

class StateMemory {
 public:
  StateMemory() = default;
  ~StateMemory();
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  absl::Status Read(const StatePlace& from, void* to, size_t bytes);
  // Hands the bytes over in order, piece by piece, where they lie or in staging memory. A piece may
  // be written elsewhere by this object's Write().
  using Use = std::function<absl::Status(const char* data, size_t at, size_t bytes)>;
  absl::Status Visit(const StatePlace& from, size_t bytes, const Use& use);
  absl::Status Write(const void* from, const StatePlace& to, size_t bytes);
  // Zeroes. Memory that has just been allocated is really there afterwards.
  absl::Status Clear(const StatePlace& place, size_t bytes);

 private:
  absl::Status UseDevice(CUcontext context);

  const CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  void* staging_ = nullptr;
};

}  // namespace rewire
