// The state of the simulated driver: one object per process, made by cuInit and never destroyed, so
// that a process can exit with streams alive. One lock guards all of it; no work of a stream (a
// copy, a host function, a kernel) runs under it. Handles are numbers that are never used twice and
// never dereferenced, so that a stale one is always told from a live one.
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
struct PhysicalMemory;
class Stream;
enum class StreamKind;

inline Mutex driver_mutex;

// A place in a stream that has been passed or not.
struct Marker {
  bool done = false;
  Time at;
  uint64_t clock = 0;  // virtual, ns; set before `done`
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
  std::map<uintptr_t, Allocation> allocations;  // by first byte
  std::map<uintptr_t, size_t> reservations;     // of addresses: first byte to size
  std::map<CUmemGenericAllocationHandle, PhysicalMemory> physical;
  // Memory created here that only other processes still use; it counts until they do not.
  std::vector<PhysicalMemory> lent;
  // Closed IPC mappings, address and size, that have not been taken down yet.
  std::vector<std::pair<void*, size_t>> closed_mappings;
  std::unordered_set<CUgraph> graphs;
  std::vector<std::shared_ptr<Stream>> retired;  // destroyed, their threads not yet joined
  CondVar progress;                              // a marker was passed or a slot came free
  int waiters = 0;                               // on progress
  cuSimCounts counts{};
  uint64_t next_id = 1;
};

// Why a call cannot be made now: before cuInit, in a forked child, in a host function.
[[nodiscard]] CUresult Enter();
// After Enter() has succeeded.
Driver& State() REWIRE_REQUIRES(driver_mutex);

template <typename Handle>
Handle NewHandle() REWIRE_REQUIRES(driver_mutex) {
  return reinterpret_cast<Handle>(uintptr_t{0x510000000000} + 16 * State().next_id++);
}

// One line on stderr: why a call was refused, where the code alone would not tell.
void Say(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Waits, with the lock released meanwhile.
void WaitFor(const MarkerRef& marker) REWIRE_REQUIRES(driver_mutex);
void WaitForProgress() REWIRE_REQUIRES(driver_mutex);
void NotifyProgress() REWIRE_REQUIRES(driver_mutex);

[[nodiscard]] Device* FindDevice(CUdevice device) REWIRE_REQUIRES(driver_mutex);

// Set while this thread runs a host function, in which the driver may not be called.
void SetInHostFunction(bool value);

}  // namespace simgpu

// The first line of every entry; holds the lock from there on.
#define SIMGPU_ENTER()                                                                     \
  if (const CUresult entered = ::simgpu::Enter(); entered != CUDA_SUCCESS) return entered; \
  ::rewire::MutexLock driver_lock(&::simgpu::driver_mutex)

#define SIMGPU_TRY(call) \
  if (const CUresult tried = (call); tried != CUDA_SUCCESS) return tried
