// The communicator's progress thread, the only thread that moves data. Kernels post their plan and
// wait; plans run one after another. A transport error stops all data movement for good and becomes
// the communicator's asynchronous error. The kernels then wait until the abort, as NCCL's do.
// Between two polls of the network the thread sleeps in poll(2).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "reconfig/base/mutex.h"
#include "tests/simgpu/nccl/abort.h"
#include "tests/simgpu/nccl/operation_pool.h"
#include "tests/simgpu/nccl/plan.h"

namespace simnccl {

class Progress {
 public:
  Progress(std::shared_ptr<Abort> abort, std::atomic<ncclResult_t>* async_error);
  ~Progress();

  // Call before the first plan that uses the network. Idempotent.
  void Start(Connections* connections);
  // Called by the kernel: returns true when the plan is complete, false when the communicator was
  // aborted.
  bool Execute(Plan* plan) REWIRE_EXCLUDES(mutex_);
  // Stops all data movement after an abort.
  void Stop() REWIRE_EXCLUDES(mutex_);

 private:
  void Run() REWIRE_EXCLUDES(mutex_);
  void Sleep(Plan* plan, int* idle);
  void Wake();

  const std::shared_ptr<Abort> abort_;
  std::atomic<ncclResult_t>* const async_error_;
  Connections* connections_ = nullptr;
  rewire::UniqueFd wake_;
  std::atomic<bool> stop_{false};
  rewire::Mutex mutex_;
  rewire::CondVar finished_cond_;
  std::deque<Plan*> queue_ REWIRE_GUARDED_BY(mutex_);
  bool dropped_all_ REWIRE_GUARDED_BY(mutex_) = false;
  OperationPool pool_;  // owned by the progress thread
  std::optional<std::thread> thread_;
};

}  // namespace simnccl
