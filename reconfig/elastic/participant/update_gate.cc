// The update boundary; see update_gate.h.
#include "reconfig/elastic/participant/update_gate.h"

#include <utility>

#include "reconfig/base/clock.h"

namespace rewire::elastic {

void UpdateGate::Recompute() {
  const bool always = joining_ || broken_ || attention_ || finished_;
  stop_at_.store(always ? 0 : pledged_, std::memory_order_seq_cst);
}

UpdateGate::Stop UpdateGate::AfterStop() {
  MutexLock lock(&mutex_);
  const uint64_t n = version_.load();
  // Stored under the lock, so that a pledge under way sees that the update has not begun.
  begun_.store(n);
  if (finished_) return Stop::kFinished;
  if (joining_ || broken_ || n >= pledged_) return Stop::kAwaitResume;
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
