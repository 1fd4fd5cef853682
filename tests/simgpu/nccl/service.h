// The communicator's service thread: listen, connect, accept, registration and close happen on it
// and nowhere else, as NCCL's proxy service does. Callers wait for the outcome.
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

  // Runs `call` on the service thread, again and again while it answers ncclInProgress, until the
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
