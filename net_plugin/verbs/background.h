// The process's threads that work for connections over RDMA beside NCCL's threads. A Watch moves a
// connection that NCCL does not poll. The other threads run commands of RDMA devices and copies,
// from their first use until the process ends. The functions are thread-safe. A Watch is owned by
// its connection's owner; the callback of Waker() is thread-safe.
#pragma once

#include <functional>
#include <memory>

namespace rewire::net {

// NCCL's thread polls a connection only while it has a request there. A receiver may have all its
// data while its sender still waits for a report about a failed rail or an answer to a rejoin.
class Watch {
 public:
  // The event that the connection waits for after a look.
  enum class Next { kNothing, kReadable, kAtOnce };
  // Moves the connection. Never runs between Enter() and Leave().
  using Look = std::function<Next()>;

  // When the destructor returns, no look is running.
  virtual ~Watch() = default;
  // Begins the caller's turn. False: a look is running, for some microseconds; the caller retries.
  [[nodiscard]] virtual bool Enter() = 0;
  // Ends the caller's turn. at_once: the remaining work does not wait for the peer or the caller.
  virtual void Leave(bool at_once) = 0;
  // Returns a callback that requests a look. The callback is thread-safe and may outlive the watch.
  [[nodiscard]] virtual std::function<void()> Waker() const = 0;
};

// Calls `look` on the process's workers, between the caller's turns: when `fd` is readable, or at
// once on request. `fd` must outlive the watch. Returns null if this process has no workers.
std::unique_ptr<Watch> WatchByWorkers(int fd, Watch::Look look);

// Runs commands of RDMA devices, such as connecting a queue pair, on up to four threads. They begin
// in the order of the calls and may overlap. On Ethernet, connecting waits until the peer's address
// is resolved: up to seconds if the peer does not answer. `work` must not throw. If the process may
// have no more threads, the caller runs the work.
void RunInBackground(std::function<void()> work);
// Runs copies of device memory one after another on another thread. Otherwise like
// RunInBackground().
void RunCopy(std::function<void()> work);

}  // namespace rewire::net
