// Begins and awaits the copies of each update; see update_snapshots.h. Owned by the program's
// thread.
#include "reconfig/elastic/participant/update_snapshots.h"

#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "reconfig/base/clock.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/log.h"

namespace rewire::elastic {
namespace {

void WarnUnless(const absl::Status& begun, uint64_t version) {
  if (begun.ok()) return;
  REWIRE_WARN("no snapshot of version %llu: %s", static_cast<unsigned long long>(version),
              std::string(begun.message()).c_str());
}

}  // namespace

void UpdateSnapshots::StartWorld(const World& world, const Key& secret, uint32_t slot,
                                 const state::ParallelLayout& layout,
                                 std::vector<state::PlacedTensor> tensors,
                                 state::SnapshotSlots::Memory memory) {
  started_ = true;
  copies_ = 0;
  snapshotter_->StartWorld(world, secret, slot, layout, std::move(tensors), std::move(memory));
  gate_->SetAttention(snapshotter_->InBackground());
  gate_->SetSnapshots(snapshotter_->InBackground() || snapshotter_->CopiesAtOnce());
}

void UpdateSnapshots::Take(uint64_t version) { Begin(version, late_); }

void UpdateSnapshots::TakeRestored(uint64_t version) { Begin(version, /*late=*/false); }

void UpdateSnapshots::Begin(uint64_t version, bool late) {
  const bool leave_out = (late || version == streamed_.load()) && snapshotter_->InBackground();
  const absl::Status begun = snapshotter_->BeginVersion(version, leave_out);
  WarnUnless(begun, version);
  left_out_ = begun.ok() && leave_out ? version : kNone;
  if (begun.ok() && !leave_out && std::has_single_bit(++copies_)) compared_ = version;
}

void UpdateSnapshots::TakeBeforeUpdate(uint64_t version) {
  // Volatile state already has its copy.
  WarnUnless(snapshotter_->BeginVersion(version, /*streamed=*/true), version);
}

bool UpdateSnapshots::CopyLeftOut(uint64_t version) {
  if (left_out_ != version || streamed_.load() == version) return false;
  left_out_ = kNone;
  snapshotter_->CopyRest(version);
  return true;
}

bool UpdateSnapshots::WaitTaken() {
  for (RunningDeadline deadline(patience_); !snapshotter_->WaitTaken(deadline.NextTurn());) {
    if (deadline.Passed()) return false;
  }
  return true;
}

void UpdateSnapshots::AwaitCopies(uint64_t version) {
  if (!WaitTaken()) return GiveUp(version);
  if (snapshotter_->TakeCutOff()) gate_->WaitBroken(notice_);
  if (std::exchange(compared_, kNone) != version) return;
  snapshotter_->Compare(version);
  if (!WaitTaken()) return GiveUp(version);
  const std::optional<std::string> changed = snapshotter_->TakeDifference();
  if (!changed) return;
  Count(Counter::kSnapshotChanged);
  REWIRE_WARN(
      "tensor %s: changed after update %llu had returned: its device work was not complete, or the "
      "program changed the tensor outside an update. Earlier copies are dropped, and from now on "
      "versions are copied when the next update begins, which delays every update",
      changed->c_str(), static_cast<unsigned long long>(version));
  late_ = true;
  snapshotter_->CopyAgain(version);
  if (!WaitTaken()) GiveUp(version);
}

void UpdateSnapshots::GiveUp(uint64_t version) {
  REWIRE_WARN("snapshot of version %llu: not complete within REWIRE_SILENCE_MS=%lld ms",
              static_cast<unsigned long long>(version),
              static_cast<long long>(std::chrono::duration_cast<milliseconds>(patience_).count()));
  snapshotter_->Freeze();
  started_ = false;
}

void UpdateSnapshots::SetStreamed(uint64_t version) {
  streamed_ = version;
  gate_->SetNotify(true);
}

void UpdateSnapshots::ClearStreamed() {
  streamed_ = kNone;
  gate_->SetNotify(false);
}

void UpdateSnapshots::EndWorld() {
  // In this order: an update that begins after a copy was cut short leaves no whole version.
  gate_->SetBroken();
  Freeze();
}

void UpdateSnapshots::Freeze() {
  if (snapshotter_ != nullptr) snapshotter_->Freeze();
}

}  // namespace rewire::elastic
