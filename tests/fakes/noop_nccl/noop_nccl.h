// An NCCL that only records its calls, for the shim's tests and benchmark. The library has every
// function of the table, as pncclX and ncclX.
//
// A test controls the library through NoopNccl(). Counting calls is thread-safe; recording is owned
// by one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rewire_nccl_api.h"

struct NoopControl {
  std::atomic<uint64_t> calls{0};
  // If true: the library records `name` and the argument bytes (in order, without padding) of the
  // last call.
  std::atomic<bool> record{false};
  const char* name = "";
  size_t size = 0;
  unsigned char bytes[512] = {};
  // If false: nothing is stored through pointers, so arguments may be anything.
  std::atomic<bool> effects{true};
  // The result of every function that returns ncclResult_t.
  std::atomic<ncclResult_t> result{ncclSuccess};
  std::atomic<ncclResult_t> async_error{ncclSuccess};
  // Called first in every function, with the function's name without prefix.
  std::atomic<void (*)(const char* name)> on_call{nullptr};
  // If true: NoopStoreChild() stores the child of a split, not the split itself.
  std::atomic<bool> late_children{false};
  std::atomic<int> alive{0};  // communicators made and not destroyed or aborted
};

// A communicator of this library. `real` is the answer of a real communicator.
struct NoopComm {
  uint64_t start = 0x0280028002800280ULL;
  int ranks = 0;
  int rank = 0;
  int device = 0;
  int operators = 0;
  std::atomic<uint64_t> operations{0};
  std::atomic<bool> gone{false};
  NoopComm* next = nullptr;  // list of all communicators ever made
};

extern "C" {
__attribute__((visibility("default"))) NoopControl* NoopNccl();
__attribute__((visibility("default"))) void NoopStoreChild();
// Stores the window whose registration has answered ncclInProgress.
__attribute__((visibility("default"))) void NoopStoreWindow();
}
