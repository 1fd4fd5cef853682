// Reads, writes and hashes state in place, and identifies the allocations that contain state. Host
// memory is used directly. Device memory is copied on a separate stream of the lowest priority,
// through pinned staging memory when the host needs the bytes. A StateMemory is owned by one
// thread; each thread may have its own object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/state/topo/runs.h"

namespace rewire {
struct CudaDriver;
}

namespace rewire::state {

class DeviceHash;

enum class MemoryKind : uint8_t { kHost = 0, kDevice = 1 };

// An address in memory that Rewire may read or write.
struct StatePlace {
  MemoryKind kind = MemoryKind::kHost;
  char* data = nullptr;
  CUcontext context = nullptr;  // of device memory
  [[nodiscard]] StatePlace At(uint64_t bytes) const { return {kind, data + bytes, context}; }
};

// Bytes in the order of their runs.
struct StateRuns {
  StatePlace part;  // the begin of the member's part
  Runs runs;
  // The place of the only run.
  [[nodiscard]] StatePlace place() const { return part.At(runs.begin()); }
};

class StateMemory {
 public:
  // patience: the limit for each piece of device work. After a timeout every call on device memory
  // fails.
  explicit StateMemory(Duration patience = kDevicePatience);
  ~StateMemory();
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  absl::Status Read(const StatePlace& from, void* to, size_t bytes);
  // Gives `use` the bytes in order, piece by piece, in place or in staging memory. `use` may write
  // a piece elsewhere by this object's Write().
  using Use = std::function<absl::Status(const char* data, size_t at, size_t bytes)>;
  absl::Status Visit(const StatePlace& from, size_t bytes, const Use& use);
  absl::Status Write(const void* from, const StatePlace& to, size_t bytes);
  // Creates the device resources that would otherwise be created by the first use, in the middle of
  // a step.
  absl::Status Warm(CUcontext context);
  // Computes HashContent() of the bytes, which are at byte `offset` of their tensor.
  absl::Status Hash(const StatePlace& place, size_t bytes, uint64_t offset, uint64_t* content);
  // Copies and hashes. A copy between devices hashes the bytes at `to` when the device takes the
  // hash kernel; every other copy hashes the bytes at `from`. Device memory (also another member's,
  // mapped) is then hashed on the device.
  absl::Status CopyHashed(const StatePlace& from, const StatePlace& to, size_t bytes,
                          uint64_t offset, uint64_t* content);
  // The same for packed bytes of runs, the first of which is byte `at`. Runs of device memory are
  // packed on the device, into a small buffer. A hash of a copy is then that of the packed bytes.
  absl::Status Visit(const StateRuns& from, uint64_t at, size_t bytes, const Use& use);
  absl::Status Write(const void* from, const StateRuns& to, uint64_t at, size_t bytes);
  absl::Status Hash(const StateRuns& place, uint64_t at, size_t bytes, uint64_t offset,
                    uint64_t* content);
  absl::Status CopyHashed(const StateRuns& from, const StateRuns& to, uint64_t at, size_t bytes,
                          uint64_t offset, uint64_t* content);
  // Writes zeroes, which also makes the pages of new memory exist.
  absl::Status Clear(const StatePlace& place, size_t bytes);

 private:
  absl::Status UseDevice(CUcontext context);
  // Waits until the stream has completed its work.
  absl::Status Settle(const char* operation, size_t bytes);
  // Enqueues copies and hashes piece by piece and waits for the sum. Without a copy both places are
  // the same.
  absl::Status HashOnDevice(const StatePlace& from, const StatePlace& to, size_t bytes,
                            uint64_t offset, uint64_t* content);

  enum class Way { kPack, kUnpack };
  // Enqueues copies between runs and the device's buffer for packed bytes.
  absl::Status CopyPacked(Way way, const StateRuns& place, uint64_t at, size_t bytes);
  absl::Status CopyRows(CUdeviceptr from, uint64_t from_pitch, CUdeviceptr to, uint64_t to_pitch,
                        uint64_t bytes, uint64_t rows);
  absl::Status UsePacked(CUcontext context);
  // Waits also after a failure, because unfinished work must not touch the state later.
  absl::Status SettleAfter(absl::Status enqueued, const char* operation, size_t bytes);

  const Duration patience_;
  std::string stuck_;  // not empty: the device did not finish its work in time
  const CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  void* staging_ = nullptr;
  bool hash_made_ = false;
  std::unique_ptr<DeviceHash> hash_;  // nullptr: the driver does not accept the kernel
  CUdeviceptr sum_ = 0;
  CUdeviceptr packed_ = 0;         // kPackedBytes on the device; 0: no runs were packed yet
  std::vector<char> packed_here_;  // the same for host memory
  size_t hash_bytes_ = 0;          // bytes hashed in one piece
};

// Identifies the driver's allocation that contains registered device memory. Memory that was freed,
// or allocated again at the same address, is no longer the program's tensor. Thread-safe.
//
// Returns a number that is unique in this process, also over time. 0: host memory, memory that is
// no allocation, or memory that has no number in the driver (mapped piece by piece).
uint64_t AllocationOf(const StatePlace& place);

// Thread-safe. Fails when the place was in this allocation and no longer is. allocation 0: unknown,
// never fails.
absl::Status CheckAllocation(std::string_view tensor, const StatePlace& place, uint64_t allocation);

}  // namespace rewire::state
