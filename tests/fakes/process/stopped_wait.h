// A wait in a process that is stopped for longer than the wait's patience, as by SIGSTOP or the
// suspension of its machine. After the stop the waiting thread runs first: what it waits for comes
// only after it has decided whether to wait on. One thread; the process has no others.
#pragma once

#include <functional>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class StoppedWait {
 public:
  StoppedWait();

  // Runs `wait` in a process of its own and stops that for `stop` while its main thread waits.
  // How that process ended, as of waitpid(2): 0 when `wait` returned.
  [[nodiscard]] int Run(Duration stop, const std::function<void()>& wait);

  // For `wait`: the next thing that the main thread sleeps for is the wait under test.
  void Begin() const;
  // For `wait`, on the thread that is waited for: returns when the main thread waits on after the
  // stop.
  void Block() const;

 private:
  UniqueFd begun_, begin_;
  UniqueFd released_, release_;
};

}  // namespace rewire
