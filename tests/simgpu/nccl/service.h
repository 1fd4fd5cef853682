// The communicator's service thread, the only thread for listen, connect, accept, registration and
// close, as in NCCL's proxy service. Callers wait for the result.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "reconfig/base/mutex.h"
#include "tests/simgpu/nccl/socket.h"

namespace simnccl {

class Service {
 public:
  Service();
  ~Service();

  // Runs `call` on the service thread, repeatedly while it returns ncclInProgress, until the
  // patience ends.
  ncclResult_t Call(std::function<ncclResult_t()> call, const Patience& patience)
      REWIRE_EXCLUDES(mutex_);

 private:
  struct Job {
    std::function<ncclResult_t()> call;
    Patience patience;
    bool done = false;
    ncclResult_t result = ncclSuccess;
  };
  void Run() REWIRE_EXCLUDES(mutex_);

  rewire::Mutex mutex_;
  rewire::CondVar cond_;
  std::deque<std::shared_ptr<Job>> jobs_ REWIRE_GUARDED_BY(mutex_);
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace simnccl
