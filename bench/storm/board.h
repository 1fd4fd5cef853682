// The position of each thread of a rank, to diagnose a hang. A thread writes its own position; the
// watchdog's thread reads all positions. Thread-safe.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/base/clock.h"

namespace rewire::bench {

class Place {
 public:
  // `what` must be a literal, because the pointer is kept.
  void Enter(const char* what, uint64_t step, int communicator) {
    what_.store(what, std::memory_order_relaxed);
    step_.store(step, std::memory_order_relaxed);
    communicator_.store(communicator, std::memory_order_relaxed);
    changes_.fetch_add(1, std::memory_order_release);
  }
  void End() { ended_.store(true, std::memory_order_release); }

  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string Text() const;

 private:
  std::atomic<const char*> what_{"start"};
  std::atomic<uint64_t> step_{0}, changes_{0};
  std::atomic<int> communicator_{0};
  std::atomic<bool> ended_{false};
};

// Ends the process with kHung when a thread has been at one place for longer than `patience`.
// Prints the places first, and the stacks of all threads of the process. A crash prints the stack
// of the thread that crashed.
class Watchdog {
 public:
  Watchdog(int rank, std::vector<std::unique_ptr<Place>>* places, Duration patience);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run();
  void Report();

  const int rank_;
  std::vector<std::unique_ptr<Place>>* const places_;
  const Duration patience_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The exit statuses of a rank, which `rewire run` and the controller see.
enum RankStatus { kDone = 0, kWrong = 40, kLost = 41, kUnexpected = 42, kHung = 43 };

}  // namespace rewire::bench
