// The update boundary; see update_gate.h.
#include "reconfig/elastic/participant/update_gate.h"

#include <algorithm>
#include <utility>

#include "reconfig/base/clock.h"

namespace rewire::elastic {

void UpdateGate::Recompute() {
  const bool always = joining_ || broken_ || attention_ || finished_;
  uint64_t stop_at = always ? 0 : pledged_;
  for (const Swap& swap : swaps_) stop_at = std::min(stop_at, swap.step);
  stop_at_.store(stop_at, std::memory_order_seq_cst);
}

std::vector<UpdateGate::Swap>::iterator UpdateGate::DueSwap() {
  const uint64_t n = version_.load();
  return std::find_if(swaps_.begin(), swaps_.end(), [n](const Swap& s) { return s.step <= n; });
}

UpdateGate::Stop UpdateGate::AfterStop() {
  MutexLock lock(&mutex_);
  const uint64_t n = version_.load();
  // Stored under the lock, so that a pledge under way sees that the update has not begun.
  begun_.store(n);
  if (finished_) return Stop::kFinished;
  if (joining_ || broken_ || n >= pledged_) return Stop::kAwaitResume;
  if (DueSwap() != swaps_.end()) return Stop::kSwap;
  begun_.store(n + 1);
  return Stop::kNone;
}

void UpdateGate::NotifyVersion() {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

void UpdateGate::PrepareStand() {
  MutexLock lock(&mutex_);
  resume_.reset();
}

std::optional<ResumeKind> UpdateGate::AwaitResume(Duration longest) {
  MutexLock lock(&mutex_);
  for (RunningDeadline deadline(longest); !resume_ && !finished_;) {
    if (deadline.Passed()) return std::nullopt;
    changed_.WaitUntil(&mutex_, deadline.NextTurn());
  }
  return std::exchange(resume_, std::nullopt);
}

void UpdateGate::SetVersion(uint64_t version) {
  MutexLock lock(&mutex_);
  version_.store(version);
  begun_.store(version);
  failed_.store(false);
}

bool UpdateGate::Pledge(uint64_t step) {
  MutexLock lock(&mutex_);
  pledged_ = step;
  Recompute();
  if (begun_.load(std::memory_order_seq_cst) <= step) return true;
  pledged_ = kNever;
  Recompute();
  return false;
}

bool UpdateGate::PledgeSwap(Epoch epoch, uint64_t step) {
  MutexLock lock(&mutex_);
  if (switching_) return false;
  swaps_.push_back({epoch, step, false});
  Recompute();
  if (begun_.load(std::memory_order_seq_cst) <= step) return true;
  swaps_.pop_back();
  Recompute();
  return false;
}

void UpdateGate::DecideSwap(Epoch epoch, bool go) {
  MutexLock lock(&mutex_);
  if (go) {
    for (Swap& swap : swaps_) swap.decided = swap.decided || swap.epoch == epoch;
  } else {
    std::erase_if(swaps_, [epoch](const Swap& s) { return s.epoch == epoch && !s.decided; });
  }
  Recompute();
  changed_.NotifyAll();
}

Epoch UpdateGate::AwaitSwap(Duration longest, bool* late) {
  MutexLock lock(&mutex_);
  for (RunningDeadline deadline(longest);;) {
    const auto due = DueSwap();
    if (due == swaps_.end() || broken_ || finished_) return 0;
    const bool all_decided =
        std::all_of(swaps_.begin(), swaps_.end(), [](const Swap& s) { return s.decided; });
    if (all_decided) {
      const Epoch epoch = due->epoch;
      swaps_.erase(due);
      Recompute();
      switching_ = true;
      return epoch;
    }
    if (deadline.Passed()) {
      *late = true;
      return 0;
    }
    changed_.WaitUntil(&mutex_, deadline.NextTurn());
  }
}

void UpdateGate::EndSwap() {
  MutexLock lock(&mutex_);
  switching_ = false;
}

void UpdateGate::Release() {
  MutexLock lock(&mutex_);
  pledged_ = kNever;
  Recompute();
}

void UpdateGate::SetJoining() {
  MutexLock lock(&mutex_);
  joining_ = true;
  Recompute();
}

void UpdateGate::SetBroken() {
  MutexLock lock(&mutex_);
  broken_ = true;
  Recompute();
  changed_.NotifyAll();
}

void UpdateGate::SetAttention(bool on) {
  MutexLock lock(&mutex_);
  attention_ = on;
  Recompute();
}

void UpdateGate::SetNotify(bool on) {
  MutexLock lock(&mutex_);
  stream_waits_ = on;
  notify_.store(stream_waits_ || snapshots_, std::memory_order_seq_cst);
}

void UpdateGate::SetSnapshots(bool on) {
  MutexLock lock(&mutex_);
  snapshots_ = on;
  notify_.store(stream_waits_ || snapshots_, std::memory_order_seq_cst);
}

bool UpdateGate::WaitVersion(uint64_t version, Time deadline) {
  MutexLock lock(&mutex_);
  while (version_.load(std::memory_order_seq_cst) < version) {
    if (!changed_.WaitUntil(&mutex_, deadline) && version_.load() < version) return false;
  }
  return true;
}

void UpdateGate::Resume(ResumeKind kind) {
  MutexLock lock(&mutex_);
  if (kind != ResumeKind::kContinue) {
    pledged_ = kNever;
    joining_ = broken_ = false;
  }
  Recompute();
  resume_ = kind;
  changed_.NotifyAll();
}

void UpdateGate::Finish(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (!finished_) reason_ = reason;
  finished_ = true;
  Recompute();
  changed_.NotifyAll();
}

bool UpdateGate::broken() const {
  MutexLock lock(&mutex_);
  return broken_;
}

bool UpdateGate::finished() const {
  MutexLock lock(&mutex_);
  return finished_;
}

std::string UpdateGate::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

bool UpdateGate::WaitBroken(Duration longest) {
  MutexLock lock(&mutex_);
  for (RunningDeadline deadline(longest); !broken_ && !finished_;) {
    if (deadline.Passed()) return false;
    changed_.WaitUntil(&mutex_, deadline.NextTurn());
  }
  return true;
}

}  // namespace rewire::elastic
