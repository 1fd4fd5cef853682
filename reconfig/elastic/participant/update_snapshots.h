// The snapshots' side of the update: when the copies of a version are begun, left out, waited for
// or given up. Owned by the program's thread, except for the methods of the member's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/participant/update_gate.h"
#include "reconfig/state/snapshot/snapshotter.h"

namespace rewire::elastic {

class UpdateSnapshots {
 public:
  // gate must outlive the object. patience: for a copy (REWIRE_SILENCE_MS).
  // patience: limit of a copy. notice: limit of the wait for a notice of a loss after the next slot
  // has refused a copy.
  UpdateSnapshots(UpdateGate* gate, Duration patience, Duration notice)
      : gate_(gate), patience_(patience), notice_(notice) {}

  // Gives the object its snapshotter, before any thread uses the object. A program that does not
  // cooperate has none, and then only the methods of the member's thread are called.
  void SetSnapshotter(std::unique_ptr<state::Snapshotter> snapshotter) {
    snapshotter_ = std::move(snapshotter);
  }
  // Ends the snapshotter's thread, when no other thread uses the object any more.
  void End() { snapshotter_.reset(); }
  [[nodiscard]] state::Snapshotter* snapshotter() const { return snapshotter_.get(); }

  // ---- the program's thread -------------------------------------------------------------------
  // Returns whether copies are made of the present world's state.
  [[nodiscard]] bool started() const { return started_; }
  // Starts the copies for this world. memory: what was reserved for the world's copies.
  void StartWorld(const World& world, const Key& secret, uint32_t slot,
                  const state::ParallelLayout& layout, std::vector<state::PlacedTensor> tensors,
                  state::SnapshotSlots::Memory memory);
  // Returns whether an update must wait for the copies of the update before.
  [[nodiscard]] bool InBackground() const { return snapshotter_->InBackground(); }
  // Begins the copies of this version of the state, except while the version is being streamed.
  void Take(uint64_t version);
  // The same for a version that Rewire has restored: nothing has changed it since.
  void TakeRestored(uint64_t version);
  // Begins the copies of the version with which a new world begins. The update that follows changes
  // the constant state.
  void TakeBeforeUpdate(uint64_t version);
  // Begins the copies of the version for which they were left out, when its transition has been
  // called off. Returns whether it has.
  bool CopyLeftOut(uint64_t version);
  void ForgetLeftOut() { left_out_ = kNone; }
  // Waits for at most REWIRE_SILENCE_MS of the time that this process runs. Returns whether the
  // state may change.
  bool WaitTaken();
  // Waits until the state of this version may change. Gives up a copy that takes too long: the next
  // death may then cost more than a step.
  //
  // When the next slot has refused a copy, this member may be lost and not know it. Another update
  // would then take the survivors further from the newest whole version. So the update first waits
  // for the notice of a loss, for two heartbeats.
  //
  // Compares the 1st, 2nd, 4th, 8th... copy of a world with the state, which an update may have
  // changed after its end. After a difference the version is copied again, and each later version
  // is copied when the next update begins.
  void AwaitCopies(uint64_t version);

  // ---- the member's thread --------------------------------------------------------------------
  // The version is being streamed to the next world's members.
  void SetStreamed(uint64_t version);
  void ClearStreamed();

  // ---- any thread -----------------------------------------------------------------------------
  // Ends the copies when one takes too long, or the program ends. Without a snapshotter nothing
  // happens.
  void Freeze();
  // Ends updates and copies after a loss of members.
  void EndWorld();

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  void Begin(uint64_t version, bool late);
  void GiveUp(uint64_t version);

  UpdateGate* const gate_;
  const Duration patience_;
  const Duration notice_;
  std::unique_ptr<state::Snapshotter> snapshotter_;
  bool started_ = false;
  uint64_t left_out_ = kNone;  // the version whose copies were left out
  uint64_t copies_ = 0;        // versions of this world that were copied at their update's end
  uint64_t compared_ = kNone;  // the version whose copy is to be compared with the state
  bool late_ = false;          // versions are copied when the next update begins
  std::atomic<uint64_t> streamed_{kNone};
};

}  // namespace rewire::elastic
