// The page that the controller and the ranks of one loss benchmark job share: the time of the
// fault, and each rank's process id and stage. loss.py has the same layout. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace rewire::bench {

enum class Stage : int64_t { kStarted = 0, kCreating = 1, kRunning = 2, kEnded = 3 };

class FaultPage {
 public:
  static constexpr int kMostRanks = 8;

  // Maps the file `path`, which the controller has made. Ends the process with status 2 on an
  // error.
  explicit FaultPage(const std::string& path);
  ~FaultPage();
  FaultPage(const FaultPage&) = delete;
  FaultPage& operator=(const FaultPage&) = delete;

  // Returns CLOCK_MONOTONIC nanoseconds just before the fault; 0: no fault yet.
  [[nodiscard]] int64_t FaultAt() const { return layout_->fault.load(std::memory_order_acquire); }
  void SetPid(int rank, int64_t pid) { At(rank).pid.store(pid, std::memory_order_release); }
  void SetStage(int rank, Stage stage) {
    At(rank).stage.store(static_cast<int64_t>(stage), std::memory_order_release);
  }

 private:
  struct RankState {
    std::atomic<int64_t> pid;
    std::atomic<int64_t> stage;
  };
  struct Layout {
    std::atomic<int64_t> fault;
    RankState ranks[kMostRanks];
  };
  RankState& At(int rank) { return layout_->ranks[rank]; }

  Layout* layout_ = nullptr;
};

}  // namespace rewire::bench
