// Whether a build ran alone. A build that was given up may still allocate beside the next one, and
// then the fall of free memory says nothing about either. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace rewire::shim {

struct BuildTurns {
  std::atomic<uint64_t> ended{0};
  std::atomic<uint64_t> begun{0};
};

// One build, as long as the object exists.
class BuildTurn {
 public:
  explicit BuildTurn(std::shared_ptr<BuildTurns> turns)
      : turns_(std::move(turns)), ended_(turns_->ended.load()), begun_(++turns_->begun) {}
  ~BuildTurn() { ++turns_->ended; }
  BuildTurn(const BuildTurn&) = delete;
  BuildTurn& operator=(const BuildTurn&) = delete;
  // Returns whether no other build ran at the same time so far.
  [[nodiscard]] bool Alone() const {
    return ended_ + 1 == begun_ && turns_->begun.load() == begun_;
  }

 private:
  // A thread that was left inside NCCL may return when the builder no longer exists.
  const std::shared_ptr<BuildTurns> turns_;
  const uint64_t ended_;
  const uint64_t begun_;
};

}  // namespace rewire::shim
