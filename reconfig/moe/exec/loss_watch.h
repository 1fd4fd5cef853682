// Watches the other processes of a node on the thread "rewire-moe-look", and releases the streams
// of this process that wait for a process that has died. The thread never waits for the balancer's
// mutex: a thread that holds that mutex may wait until the streams are released. Thread-safe,
// except that one thread calls Start() and Stop().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/moe/exec/copy_queue.h"
#include "reconfig/moe/exec/joined_node.h"

namespace rewire::moe {

class LossWatch {
 public:
  // Makes the stream on which waiting streams are released. `node` must outlive this object.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<LossWatch>> Create(JoinedNode* node);
  ~LossWatch() { Stop(); }
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;

  // Starts the thread, after the node's processes have met. context: where the streams are.
  void Start(CUcontext context);
  void Stop();

  // Looks now, so that a process that has just ended is found.
  void LookNow();
  // Returns the rank of the first process that was lost, before any stream is released.
  [[nodiscard]] std::optional<uint32_t> lost() const;

 private:
  explicit LossWatch(JoinedNode* node) : node_(*node) {}
  void Run(CUcontext context);

  JoinedNode& node_;
  std::unique_ptr<CopyQueue> release_;  // owned by the thread
  std::atomic<int> lost_{-1};           // set before streams are released; -1: none
  Mutex mutex_;
  CondVar soon_;
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rewire::moe
