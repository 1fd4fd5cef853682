// Reading, writing and hashing state where it lies: host memory directly, device memory by copies
// on a stream of our own of the lowest priority, through pinned staging where the bytes must come
// to the host. An object belongs to one thread; any number of threads may each have one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/base/device_wait.h"

namespace rewire {

struct CudaDriver;
class DeviceHash;

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
  // patience: for each piece of device work; after it, every call on device memory is refused.
  explicit StateMemory(Duration patience = kDevicePatience);
  ~StateMemory();
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  absl::Status Read(const StatePlace& from, void* to, size_t bytes);
  // Hands the bytes over in order, piece by piece, where they lie or in staging memory. A piece may
  // be written elsewhere by this object's Write().
  using Use = std::function<absl::Status(const char* data, size_t at, size_t bytes)>;
  absl::Status Visit(const StatePlace& from, size_t bytes, const Use& use);
  absl::Status Write(const void* from, const StatePlace& to, size_t bytes);
  // Makes what the first use of this device would have to make in the middle of a step.
  absl::Status Warm(CUcontext context);
  // HashContent() of bytes that lie at byte `offset` of their tensor.
  absl::Status Hash(const StatePlace& place, size_t bytes, uint64_t offset, uint64_t* content);
  // Copies, and hashes what was copied: what stands at `to` if that is on a device, else what
  // stands at `from`. Device memory (which may be another member's, mapped) is hashed on the
  // device.
  absl::Status CopyHashed(const StatePlace& from, const StatePlace& to, size_t bytes,
                          uint64_t offset, uint64_t* content);
  // Zeroes. Memory that has just been allocated is really there afterwards.
  absl::Status Clear(const StatePlace& place, size_t bytes);

 private:
  absl::Status UseDevice(CUcontext context);
  // Until the stream has done what is in it.
  absl::Status Settle(const char* operation, size_t bytes);
  // Puts copy and hash into the stream, piece by piece; waits for the sum. Without a copy both
  // places are the same.
  absl::Status HashOnDevice(const StatePlace& from, const StatePlace& to, size_t bytes,
                            uint64_t offset, uint64_t* content);

  const Duration patience_;
  std::string stuck_;  // not empty: the device did not finish its work in time
  const CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  void* staging_ = nullptr;
  bool hash_made_ = false;
  std::unique_ptr<DeviceHash> hash_;  // none: the driver does not take it
  CUdeviceptr sum_ = 0;
  size_t hash_bytes_ = 0;  // hashed at a time
};

}  // namespace rewire
