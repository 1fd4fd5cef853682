#include "tests/simgpu/nccl/progress.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {

Progress::Progress(std::shared_ptr<Abort> abort, std::atomic<ncclResult_t>* async_error)
    : abort_(std::move(abort)),
      async_error_(async_error),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Progress::~Progress() { Stop(); }

void Progress::Start(Connections* connections) {
  if (thread_.has_value()) return;
  connections_ = connections;
  thread_.emplace([this] { Run(); });
}

void Progress::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

bool Progress::Execute(Plan* plan) {
  rewire::MutexLock lock(&mutex_);
  if (dropped_all_) return false;
  queue_.push_back(plan);
  if (queue_.size() == 1) Wake();
  for (;;) {
    if (std::find(queue_.begin(), queue_.end(), plan) == queue_.end()) return !dropped_all_;
    finished_cond_.WaitUntil(&mutex_, rewire::Now() + rewire::seconds(10));
  }
}

void Progress::Stop() {
  if (!thread_.has_value()) return;
  stop_.store(true, std::memory_order_release);
  Wake();
  thread_->join();
  thread_.reset();
}

void Progress::Run() {
  ::pthread_setname_np(::pthread_self(), "simnccl-prog");
  Plan* current = nullptr;
  bool failed = false;
  int idle = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    if (abort_->IsSet()) {
      // The callers of Execute() own the plans. Drop the pointers before these callers return.
      rewire::MutexLock lock(&mutex_);
      dropped_all_ = true;
      queue_.clear();
      finished_cond_.NotifyAll();
      current = nullptr;
      failed = true;
    }
    if (current == nullptr && !failed) {
      rewire::MutexLock lock(&mutex_);
      if (!queue_.empty()) current = queue_.front();
      if (current != nullptr) current->Begin(connections_);
    }
    if (current != nullptr) pool_.Need();
    bool moved = false;
    bool done = false;
    if (current != nullptr && !failed) {
      const ncclResult_t result = current->Advance(&moved, &done);
      if (result != ncclSuccess) {
        ncclResult_t expected = ncclSuccess;
        async_error_->compare_exchange_strong(expected, result);
        failed = true;
      } else if (done) {
        rewire::MutexLock lock(&mutex_);
        queue_.pop_front();
        current = nullptr;
        finished_cond_.NotifyAll();
        if (!queue_.empty()) continue;
      }
    }
    if (moved && !done) {
      idle = 0;
      continue;
    }
    Sleep(failed ? nullptr : current, &idle);
  }
  rewire::MutexLock lock(&mutex_);
  dropped_all_ = true;
  queue_.clear();
  finished_cond_.NotifyAll();
}

void Progress::Sleep(Plan* plan, int* idle) {
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  bool dropped;
  {
    rewire::MutexLock lock(&mutex_);
    dropped = dropped_all_;
  }
  if (!dropped) fds.push_back({abort_->fd(), POLLIN, 0});
  timespec timeout{1, 0};
  if (plan != nullptr) {
    std::vector<Connection*> waiting;
    plan->AppendWaiting(&waiting);
    for (const Connection* c : waiting) {
      short events = 0;
      const int fd = c->net()->PollFd(c->comm(), c->sending(), &events);
      if (fd >= 0) {
        fds.push_back({fd, events, 0});
      } else {
        // A plugin without a descriptor must be polled: at first every 10 us, later every 500 us.
        *idle = std::min(*idle + 1, 64);
        timeout = {0, *idle < 16 ? 10'000 : *idle < 64 ? 50'000 : 500'000};
      }
    }
  }
  ::ppoll(fds.data(), fds.size(), &timeout, nullptr);
  if ((fds[0].revents & POLLIN) != 0) {
    uint64_t count;
    (void)!::read(wake_.get(), &count, sizeof(count));
  }
}

}  // namespace simnccl
