// Runs posted pieces of work on one named thread, in the order of their times.
//
// Any thread may post. The destructor, called by the owner, joins the thread and drops work that
// has not begun, so no caller may wait for a piece of work without a deadline. The thread starts
// with the first piece.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"

namespace rewire::shim {

class WorkQueue {
 public:
  // name: at most 15 characters. nice: niceness of this thread alone (setpriority of a thread id).
  explicit WorkQueue(std::string name, int nice = 0) : name_(std::move(name)), nice_(nice) {}
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Post(std::function<void()> work) { PostAt(Now(), std::move(work)); }
  void PostAt(Time when, std::function<void()> work) REWIRE_EXCLUDES(mutex_);

 private:
  void Run() REWIRE_EXCLUDES(mutex_);

  const std::string name_;
  const int nice_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ REWIRE_GUARDED_BY(mutex_) = false;
  std::multimap<Time, std::function<void()>> work_ REWIRE_GUARDED_BY(mutex_);
  std::thread thread_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::shim
