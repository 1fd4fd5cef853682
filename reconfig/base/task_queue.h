// Runs tasks on named threads of its own, in the order of their times.
//
// Any thread may post. A thread starts with a task that no other thread is free for. The
// destructor, called by the owner, joins the threads and drops tasks that have not begun, so no
// caller may wait for a task without a deadline. A queue that must outlive all others is not
// destroyed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"

namespace rewire {

class TaskQueue {
 public:
  // name: of the threads, at most 15 characters. With more than one thread, a task that waits does
  // not delay the next tasks.
  explicit TaskQueue(std::string name, size_t threads = 1)
      : name_(std::move(name)), most_threads_(threads) {}
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // Both throw std::system_error when the first thread cannot start, and then drop the task.
  void Post(std::function<void()> task) { PostAt(Now(), std::move(task)); }
  void PostAt(Time when, std::function<void()> task) REWIRE_EXCLUDES(mutex_);

 private:
  void Run() REWIRE_EXCLUDES(mutex_);

  const std::string name_;
  const size_t most_threads_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ REWIRE_GUARDED_BY(mutex_) = false;
  size_t waiting_ REWIRE_GUARDED_BY(mutex_) = 0;  // threads without a task
  std::multimap<Time, std::function<void()>> tasks_ REWIRE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire
