// An NCCL that does nothing but remember how it was called: for the shim's tests and its benchmark.
//
// Every function of the table, as pncclX and ncclX. A test controls it through NoopNccl(); calls
// from several threads may be counted, recording is for one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rewire_nccl_api.h"

struct NoopControl {
  std::atomic<uint64_t> calls{0};
  // true: `name` and `bytes` of the arguments (in order, without padding) of the last call.
  std::atomic<bool> record{false};
  const char* name = "";
  size_t size = 0;
  unsigned char bytes[512] = {};
  // false: nothing is stored through pointers, so arguments may be anything.
  std::atomic<bool> effects{true};
  // What every function that returns ncclResult_t gives.
  std::atomic<ncclResult_t> result{ncclSuccess};
  std::atomic<ncclResult_t> async_error{ncclSuccess};
  // Called first in every function, with its name without prefix.
  std::atomic<void (*)(const char* name)> on_call{nullptr};
  // true: a split leaves its child to be stored by NoopStoreChild().
  std::atomic<bool> late_children{false};
  std::atomic<int> alive{0};  // communicators made and not destroyed or aborted
};

// A communicator of this library. `real` answers what a real one would.
struct NoopComm {
  uint64_t start = 0x0280028002800280ULL;
  int ranks = 0;
  int rank = 0;
  int device = 0;
  int operators = 0;
  std::atomic<uint64_t> operations{0};
  std::atomic<bool> gone{false};
  NoopComm* next = nullptr;  // of all that were ever made
};

extern "C" {
__attribute__((visibility("default"))) NoopControl* NoopNccl();
__attribute__((visibility("default"))) void NoopStoreChild();
// The window whose registration has answered ncclInProgress.
__attribute__((visibility("default"))) void NoopStoreWindow();
}
