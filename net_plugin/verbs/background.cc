#include "net_plugin/verbs/background.h"

#include <utility>

#include "reconfig/base/task_queue.h"

namespace rewire::net {

// The queues are never destroyed, because a connection may end at the process's exit.

void RunInBackground(std::function<void()> work) {
  // Several threads, so that work that waits for one peer does not delay work for other peers.
  static auto* const queue = new TaskQueue("rewire-net-join", 4);
  queue->Post(std::move(work));
}

void RunCopy(std::function<void()> work) {
  static auto* const queue = new TaskQueue("rewire-net-copy");
  queue->Post(std::move(work));
}

}  // namespace rewire::net
