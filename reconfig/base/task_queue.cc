#include "reconfig/base/task_queue.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace rewire {

TaskQueue::~TaskQueue() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
}

void TaskQueue::PostAt(Time when, std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  const auto posted = tasks_.emplace(when, std::move(task));
  if (waiting_ < tasks_.size() && threads_.size() < most_threads_) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
      // The process may have no more threads. A thread that exists takes the task later.
      if (threads_.empty()) {
        tasks_.erase(posted);
        throw;
      }
    }
  }
  // All: the thread that takes this task may be the one that waited for the time of another.
  changed_.NotifyAll();
}

void TaskQueue::Run() {
  pthread_setname_np(pthread_self(), name_.c_str());
  for (;;) {
    std::function<void()> next;
    {
      MutexLock lock(&mutex_);
      ++waiting_;
      while (!stopping_ && (tasks_.empty() || tasks_.begin()->first > Now())) {
        changed_.WaitUntil(&mutex_, tasks_.empty() ? Now() + seconds(3600) : tasks_.begin()->first);
      }
      --waiting_;
      if (stopping_) return;
      next = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
    }
    next();
  }
}

}  // namespace rewire
