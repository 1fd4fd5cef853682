#include "tests/simgpu/nccl/service.h"

#include <pthread.h>

#include <algorithm>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {

Service::Service() : thread_([this] { Run(); }) {}

Service::~Service() {
  {
    rewire::MutexLock lock(&mutex_);
    stop_ = true;
    cond_.NotifyAll();
  }
  thread_.join();
}

ncclResult_t Service::Call(std::function<ncclResult_t()> call, const Patience& patience) {
  auto job = std::make_shared<Job>(Job{std::move(call), patience});
  rewire::MutexLock lock(&mutex_);
  jobs_.push_back(job);
  cond_.NotifyAll();
  // The service thread ends the job at its deadline: the call may be in progress.
  while (!job->done) cond_.WaitUntil(&mutex_, rewire::Now() + rewire::seconds(10));
  return job->result;
}

void Service::Run() {
  ::pthread_setname_np(::pthread_self(), "simnccl-serv");
  rewire::Duration nap = rewire::microseconds(20);
  for (;;) {
    std::deque<std::shared_ptr<Job>> jobs;
    {
      rewire::MutexLock lock(&mutex_);
      while (jobs_.empty() && !stop_) {
        cond_.WaitUntil(&mutex_, rewire::Now() + rewire::seconds(10));
      }
      if (stop_) return;
      jobs = jobs_;
    }
    bool finished = false;
    for (const std::shared_ptr<Job>& job : jobs) {
      ncclResult_t result = job->call();
      if (result == ncclInProgress) {
        result = job->patience.Check("connecting the transport");
        if (result == ncclSuccess) continue;
      }
      finished = true;
      rewire::MutexLock lock(&mutex_);
      job->result = result;
      job->done = true;
      jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
      cond_.NotifyAll();
    }
    // NCCL's service thread polls without pause here; on two cores that polling would starve the
    // peers.
    nap = finished ? rewire::microseconds(20)
                   : std::min<rewire::Duration>(nap * 2, rewire::milliseconds(1));
    if (!finished) {
      rewire::MutexLock lock(&mutex_);
      if (!stop_) cond_.WaitUntil(&mutex_, rewire::Now() + nap);
    }
  }
}

}  // namespace simnccl
