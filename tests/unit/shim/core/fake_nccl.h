// A fake of the real NCCL, scripted by the test. One per process, reset by each test. Thread-safe.
//
// As in NCCL, ncclCommAbort sets flags at once and frees at the end of the outermost group, or at
// once outside a group. Freeing a communicator while a thread is inside counts as a misuse.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reconfig/base/mutex.h"
#include "shim/core/environment.h"

namespace rewire::shim {

struct FakeNccl {
  struct Comm {
    int number = 0;
    int ranks = 0;
    int rank = 0;
    bool blocking = true;
    bool aborted = false;              // the flags are set
    bool destroyed = false;            // freed
    int inside = 0;                    // number of threads
    int polls_left = 0;                // number of times that GetAsyncError returns InProgress
    ncclResult_t error = ncclSuccess;  // what GetAsyncError returns after that
    std::vector<size_t> operations;
  };
  static constexpr seconds kPatience{20};

  // The script.
  ncclResult_t init_result = ncclSuccess;
  bool init_blocks = false;        // until released, or the communicator is aborted
  bool abort_ignored = false;      // by blocked calls
  bool simulation_blocks = false;  // until released, or the communicator is aborted
  bool operations_block = false;   // until the communicator is aborted
  int polls = 0;                   // of new communicators
  int operation_polls = 0;         // of a non-blocking communicator after an operation
  ncclResult_t simulate_result = ncclSuccess;
  ncclResult_t operation_result = ncclSuccess;
  ncclResult_t send_result = ncclSuccess;

  // The recorded events.
  std::map<ncclComm_t, std::unique_ptr<Comm>> comms;
  std::vector<std::string> calls;  // calls about whole communicators, in order
  std::vector<std::string> simulated;
  std::vector<std::string> sends;     // "0 to 1", as a rank sends or receives
  std::vector<std::string> launches;  // "communicator.tag", and "settled communicator"
  int blocked = 0;
  int misuses = 0;  // calls on a freed or aborted communicator, or a free during a call
  Mutex mutex;
  CondVar changed;

  static FakeNccl& Get();
  static void Reset();
  static NcclCalls Calls(bool abort_frees_at_group_end = true);

  Comm* Of(ncclComm_t comm);
  // Returns the number of communicators not ended yet.
  int Live();
  // Returns the number of threads blocked in an operation.
  int Blocked();
  // Releases all blocked calls.
  void Release();
  // Issues an operation as the application's thread does.
  static ncclResult_t Operate(ncclComm_t comm, size_t tag);
};

}  // namespace rewire::shim
