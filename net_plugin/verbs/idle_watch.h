// NCCL's thread moves a connection only while it has a request there. A receiver may have all that
// it asked for while its sender still waits for a word about a rail that has failed: then a worker
// moves it. One of the two at a time, by turns that cost an atomic operation when the first request
// comes and when the last one ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "net_plugin/socket/workers.h"

namespace rewire::net {

class IdleWatch final : private Workers::Work {
 public:
  // What a look at the connection has left to wait for.
  enum class Next { kNothing, kReadable, kAtOnce };

  // look: on a worker, while nobody has entered and the descriptor is readable.
  IdleWatch(int fd, std::function<Next()> look);
  // No look is under way any more.
  ~IdleWatch() override;

  // The caller's turn begins. False: a worker is at it, for some microseconds; ask again.
  [[nodiscard]] bool Enter();
  // And ends.
  void Leave();

 private:
  enum class Turn { kNobody, kCaller, kWorker };

  void Drive(size_t stream) override;
  bool Take(Turn turn);

  const std::function<Next()> look_;
  std::atomic<Turn> turn_{Turn::kNobody};
  std::atomic<bool> missed_{false};  // a worker came in the caller's turn, and waits for nothing
  uint64_t worker_ = 0;
};

}  // namespace rewire::net
