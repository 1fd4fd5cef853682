// Who moves a connection that NCCL leaves alone. NCCL's thread moves it only while it has a request
// there. A receiver may have all that it asked for while its sender still waits for a word about a
// rail that has failed, or for an answer about one that is to be joined again.
#pragma once

#include <functional>
#include <memory>

namespace rewire::net {

class Watch {
 public:
  // What a look at the connection has left to wait for.
  enum class Next { kNothing, kReadable, kAtOnce };
  // Moves the connection. Never while somebody has entered.
  using Look = std::function<Next()>;

  // No look is under way any more.
  virtual ~Watch() = default;
  // The caller's turn begins. False: a look is under way, for some microseconds; ask again.
  [[nodiscard]] virtual bool Enter() = 0;
  // And ends. at_once: what is left to do waits for nobody.
  virtual void Leave(bool at_once) = 0;
  // Asks for a look. From any thread, at any time, also when the watch is gone.
  [[nodiscard]] virtual std::function<void()> Bell() const = 0;
};

// Looks on one of the process's workers while nobody has entered: when the descriptor is readable,
// or at once where that is asked for. Null: this process has no workers.
std::unique_ptr<Watch> WatchByWorkers(int fd, Watch::Look look);

}  // namespace rewire::net
