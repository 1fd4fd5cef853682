// The state of the simulated driver. cuInit makes one object per process, which is never destroyed,
// so that a process can exit while streams are alive. One lock guards all of the state; no stream
// work (a copy, a host function, a kernel) runs under the lock. Handles are numbers that are never
// reused and never dereferenced, so that a stale handle is always detected.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "reconfig/abi/cuda_types.h"
#include "reconfig/base/mutex.h"
#include "tests/simgpu/cuda/arena.h"
#include "tests/simgpu/cuda/extensions.h"
#include "tests/simgpu/cuda/settings.h"

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

namespace simgpu {

using rewire::CondVar;
using rewire::Mutex;
using rewire::MutexLock;
using rewire::Now;
using rewire::Time;

struct Context;
struct Event;
struct Allocation;
struct Capture;
struct PhysicalMemory;
struct UserObject;
class Stream;
enum class StreamKind;

inline Mutex driver_mutex;

// A position in a stream that has been passed or not.
struct Marker {
  bool done = false;
  Time at;
  uint64_t clock = 0;  // virtual ns; set before `done`
};
using MarkerRef = std::shared_ptr<Marker>;

struct Device {
  int ordinal = 0;
  Arena arena;
  CUcontext primary = nullptr;
  int primary_references = 0;
  unsigned primary_flags = 0;
  std::vector<MarkerRef> running_kernels;
  MarkerRef queue_tail;  // with one hardware queue: passed when the last submission has begun
};

struct Driver {
  Settings settings;
  std::vector<std::unique_ptr<Device>> devices;
  std::unordered_map<CUcontext, std::unique_ptr<Context>> contexts;
  std::unordered_map<CUstream, std::shared_ptr<Stream>> streams;
  std::unordered_map<CUevent, std::unique_ptr<Event>> events;
  std::map<uintptr_t, Allocation> allocations;  // key: first byte
  std::map<uintptr_t, size_t> reservations;     // reserved addresses: first byte to size
  std::map<CUmemGenericAllocationHandle, PhysicalMemory> physical;
  // Memory created here that only other processes still use; it counts until they release it.
  std::vector<PhysicalMemory> lent;
  // Closed IPC mappings, address and size, that have not been unmapped yet.
  std::vector<std::pair<void*, size_t>> closed_mappings;
  // By graph, the references that it holds to user objects.
  std::map<CUgraph, std::map<CUuserObject, unsigned>> graphs;
  std::map<CUuserObject, UserObject> user_objects;
  // Destroyed streams whose threads are not yet joined.
  std::vector<std::shared_ptr<Stream>> retired;
  CondVar progress;  // a marker was passed or a slot came free
  int waiters = 0;   // threads that wait on progress
  cuSimCounts counts{};
  uint64_t next_id = 1;
};

// Returns the reason why a call is refused now: before cuInit, in a forked child, in a host
// function.
[[nodiscard]] CUresult Enter();
// Valid after Enter() has succeeded.
Driver& State() REWIRE_REQUIRES(driver_mutex);

template <typename Handle>
Handle NewHandle() REWIRE_REQUIRES(driver_mutex) {
  return reinterpret_cast<Handle>(uintptr_t{0x510000000000} + 16 * State().next_id++);
}

// Prints one line on stderr that explains a refused call, if the code alone is ambiguous.
void Say(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Waits and releases the lock during the wait.
void WaitFor(const MarkerRef& marker) REWIRE_REQUIRES(driver_mutex);
void WaitForProgress() REWIRE_REQUIRES(driver_mutex);
void NotifyProgress() REWIRE_REQUIRES(driver_mutex);

[[nodiscard]] Device* FindDevice(CUdevice device) REWIRE_REQUIRES(driver_mutex);

// Marks that this thread runs a host function, in which the driver may not be called.
void SetInHostFunction(bool value);

}  // namespace simgpu

// The first line of every entry; holds the lock until the entry returns.
#define SIMGPU_ENTER()                                                                     \
  if (const CUresult entered = ::simgpu::Enter(); entered != CUDA_SUCCESS) return entered; \
  ::rewire::MutexLock driver_lock(&::simgpu::driver_mutex)

#define SIMGPU_TRY(call) \
  if (const CUresult tried = (call); tried != CUDA_SUCCESS) return tried
