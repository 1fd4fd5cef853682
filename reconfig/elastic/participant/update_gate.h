// The gate between the program's thread and Rewire at the update boundary.
//
// The program's thread passes the gate before and after every update. Without anything pending,
// each pass costs one store and one load. Rewire's own thread can stop the program here. A pledge
// for step n and the begin of update n are ordered by a store and a load on each side (sequentially
// consistent): at least one side sees the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/elastic/member/member_action.h"

namespace rewire::elastic {

class UpdateGate {
 public:
  enum class Stop : uint8_t {
    kNone,         // continue
    kAwaitResume,  // a pledged step, a loss, or joining: wait in AwaitResume()
    kSwap,         // a swap is due at this update: call AwaitSwap()
    kFinished,     // the process is no longer part of the job
  };

  // ---- the program's thread -------------------------------------------------------------------
  // Begins update number version(). When it returns false, call AfterStop() first.
  bool Begin() {
    const uint64_t n = version_.load(std::memory_order_relaxed);
    begun_.store(n + 1, std::memory_order_seq_cst);
    return n < stop_at_.load(std::memory_order_seq_cst);
  }
  // Call after Begin() has returned false, as often as needed. kNone: the update has begun.
  Stop AfterStop();
  // Takes Begin() back: the update does not begin.
  void Withdraw() { begun_.store(version_.load()); }
  // Records that the update was applied. Returns true when snapshots or a stream wait for the
  // version.
  bool End() {
    version_.store(begun_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    return notify_.load(std::memory_order_seq_cst);
  }
  void NotifyVersion();
  // Records that the update's function failed: the update has begun and was not applied.
  void Failed() { failed_.store(true); }
  // Call before the program's stand is reported to Rewire.
  void PrepareStand();
  // Waits until Rewire says how to continue. Returns nullopt when finished, or after `longest`;
  // time in which the process did not run does not count.
  std::optional<ResumeKind> AwaitResume(Duration longest);
  // Waits until every swap is decided, because one of them may replace the swap that is due. Takes
  // the swap that is due; call EndSwap() when the communicators have switched. Returns its epoch,
  // or 0 when it was called off, after a loss, when finished, or (with *late) after `longest`.
  Epoch AwaitSwap(Duration longest, bool* late);
  void EndSwap();
  // Sets the version of the state in place, which is whole (for a joiner, or after a restore).
  void SetVersion(uint64_t version);

  // ---- Rewire's threads -----------------------------------------------------------------------
  // Stops the program before update `step` until Release, or Resume with another kind than
  // kContinue. Returns false when that update has begun already.
  bool Pledge(uint64_t step);
  void Release();
  // The same for communicators that switch before update `step`. The program waits there for the
  // decision. Call before the communicators pledge: they must not switch meanwhile. Returns false
  // when that update has begun, or while they switch at another one. go: the swap is due at that
  // update; otherwise it is called off.
  bool PledgeSwap(Epoch epoch, uint64_t step);
  void DecideSwap(Epoch epoch, bool go);
  void SetJoining();
  void SetBroken();
  // Sends every update along the slow path, so that it waits for its snapshot.
  void SetAttention(bool on);
  // Reports every applied update to a stream that waits for a version. SetSnapshots does the same
  // for snapshots.
  void SetNotify(bool on);
  void SetSnapshots(bool on);
  bool WaitVersion(uint64_t version, Time deadline);
  void Resume(ResumeKind kind);
  void Finish(const std::string& reason);

  // ---- any thread -----------------------------------------------------------------------------
  [[nodiscard]] uint64_t version() const { return version_.load(); }
  [[nodiscard]] uint64_t begun() const { return begun_.load(); }
  [[nodiscard]] bool whole() const { return begun_.load() == version_.load() && !failed_.load(); }
  [[nodiscard]] bool broken() const;
  [[nodiscard]] bool finished() const;
  [[nodiscard]] std::string reason() const;
  // Returns true once broken or finished; false after `longest`, as in AwaitResume().
  bool WaitBroken(Duration longest);

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  struct Swap {
    Epoch epoch = 0;
    uint64_t step = 0;
    bool decided = false;
  };
  void Recompute() REWIRE_REQUIRES(mutex_);
  // Returns the first swap that is due at the program's version; swaps_.end(): none.
  std::vector<Swap>::iterator DueSwap() REWIRE_REQUIRES(mutex_);

  std::atomic<uint64_t> version_{0};
  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> stop_at_{kNever};
  std::atomic<bool> notify_{false};
  std::atomic<bool> failed_{false};

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t pledged_ REWIRE_GUARDED_BY(mutex_) = kNever;
  std::vector<Swap> swaps_ REWIRE_GUARDED_BY(mutex_);  // in the order of epochs
  bool switching_ REWIRE_GUARDED_BY(mutex_) = false;   // between AwaitSwap() and EndSwap()
  bool joining_ REWIRE_GUARDED_BY(mutex_) = false;
  bool broken_ REWIRE_GUARDED_BY(mutex_) = false;
  bool attention_ REWIRE_GUARDED_BY(mutex_) = false;
  bool stream_waits_ REWIRE_GUARDED_BY(mutex_) = false;
  bool snapshots_ REWIRE_GUARDED_BY(mutex_) = false;
  bool finished_ REWIRE_GUARDED_BY(mutex_) = false;
  std::string reason_ REWIRE_GUARDED_BY(mutex_);
  std::optional<ResumeKind> resume_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::elastic
