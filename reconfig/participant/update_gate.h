// Where the program's thread and Rewire meet: the update boundary.
//
// The program's thread passes here before and after every update; with nothing pending that is one
// store and one load before, one store and one load after. Rewire's own thread makes it stop. A
// pledge for step n and the begin of update n are ordered by a store and a load on either side
// (sequentially consistent): at least one of both sees the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/transition/member_action.h"

namespace rewire {

class UpdateGate {
 public:
  enum class Stop : uint8_t {
    kNone,      // go on
    kStand,     // a pledged step, a loss, or joining: stand still
    kFinished,  // the process is not part of the job any more
  };

  // ---- the program's thread -------------------------------------------------------------------
  // Update number version() is about to begin. False: ask AfterStop() first.
  bool Begin() {
    const uint64_t n = version_.load(std::memory_order_relaxed);
    begun_.store(n + 1, std::memory_order_seq_cst);
    return n < stop_at_.load(std::memory_order_seq_cst);
  }
  // After Begin() gave false, as often as needed: kNone means that the update has begun.
  Stop AfterStop();
  // The update was applied. True: somebody wants to know (snapshots, a stream that waits).
  bool End() {
    version_.store(begun_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    return notify_.load(std::memory_order_seq_cst);
  }
  void NotifyVersion();
  // The update's function failed: begun, and not applied.
  void Failed() { failed_.store(true); }
  // Before Rewire is told that the program stands.
  void PrepareStand();
  // Stands until Rewire says how to go on. Nothing when finished, or after `longest`, in which a
  // time that the process did not run does not count.
  std::optional<ResumeKind> Stand(Duration longest);
  // The state in place is of this version (a joiner, or after a restore), and whole.
  void SetVersion(uint64_t version);

  // ---- Rewire's threads -----------------------------------------------------------------------
  // The program will not begin update `step` before Release or Resume; false: it has begun already.
  bool Pledge(uint64_t step);
  void Release();
  void SetJoining();
  void SetBroken();
  // Every update takes the slow way, so that it waits for its snapshot.
  void SetAttention(bool on);
  // Somebody wants to know of every applied update: a stream that waits for a version, snapshots.
  void SetNotify(bool on);
  void SetSnapshots(bool on);
  bool WaitVersion(uint64_t version, Time deadline);
  void Resume(ResumeKind kind);
  void Finish(const std::string& reason);

  // ---- anybody --------------------------------------------------------------------------------
  [[nodiscard]] uint64_t version() const { return version_.load(); }
  [[nodiscard]] uint64_t begun() const { return begun_.load(); }
  [[nodiscard]] bool whole() const { return begun_.load() == version_.load() && !failed_.load(); }
  [[nodiscard]] bool broken() const;
  [[nodiscard]] bool finished() const;
  [[nodiscard]] std::string reason() const;
  // True once broken or finished; false after `longest`, as in Stand().
  bool WaitBroken(Duration longest);

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  void Recompute() REWIRE_REQUIRES(mutex_);

  std::atomic<uint64_t> version_{0};
  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> stop_at_{kNever};
  std::atomic<bool> notify_{false};
  std::atomic<bool> failed_{false};

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t pledged_ REWIRE_GUARDED_BY(mutex_) = kNever;
  bool joining_ REWIRE_GUARDED_BY(mutex_) = false;
  bool broken_ REWIRE_GUARDED_BY(mutex_) = false;
  bool attention_ REWIRE_GUARDED_BY(mutex_) = false;
  bool stream_waits_ REWIRE_GUARDED_BY(mutex_) = false;
  bool snapshots_ REWIRE_GUARDED_BY(mutex_) = false;
  bool finished_ REWIRE_GUARDED_BY(mutex_) = false;
  std::string reason_ REWIRE_GUARDED_BY(mutex_);
  std::optional<ResumeKind> resume_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire
