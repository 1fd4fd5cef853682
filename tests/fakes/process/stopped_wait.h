// A wait in a process that is stopped for longer than the wait's timeout, as by SIGSTOP or the
// suspension of its machine. After the stop the waiting thread runs first: the awaited event occurs
// only after the thread has decided whether to continue waiting. Owned by one thread; the process
// has no others.
#pragma once

#include <functional>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class StoppedWait {
 public:
  StoppedWait();

  // Runs `wait` in its own process and stops that process for `stop` while its main thread waits.
  // Returns the process's status as of waitpid(2): 0 when `wait` returned.
  [[nodiscard]] int Run(Duration stop, const std::function<void()>& wait);

  // Called by `wait`: the main thread's next sleep is the wait under test.
  void Begin() const;
  // Called by `wait` on the awaited thread: returns when the main thread continues to wait after
  // the stop.
  void Block() const;

 private:
  UniqueFd begun_, begin_;
  UniqueFd released_, release_;
};

}  // namespace rewire
