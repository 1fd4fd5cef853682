#include "shim/core/work_queue.h"

#include <pthread.h>

#include <utility>

#include "shim/core/thread_priority.h"

namespace rewire::shim {

WorkQueue::~WorkQueue() {
  std::thread thread;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    thread = std::move(thread_);
    changed_.NotifyAll();
  }
  if (thread.joinable()) thread.join();
}

void WorkQueue::PostAt(Time when, std::function<void()> work) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  work_.emplace(when, std::move(work));
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.NotifyOne();
}

void WorkQueue::Run() {
  pthread_setname_np(pthread_self(), name_.c_str());
  if (nice_ != 0) SetOwnNiceness(nice_);
  for (;;) {
    std::function<void()> next;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (work_.empty() || work_.begin()->first > Now())) {
        changed_.WaitUntil(&mutex_, work_.empty() ? Now() + seconds(3600) : work_.begin()->first);
      }
      if (stopping_) return;
      next = std::move(work_.begin()->second);
      work_.erase(work_.begin());
    }
    next();
  }
}

}  // namespace rewire::shim
