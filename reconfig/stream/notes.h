// Short messages between two members, carried as fragments of tensors that no
// program has: docs/stream.md. Take() is called from the transport's thread, the others by the
// thread that runs the transition; Cancel() by any.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/transition/world.h"

namespace rewire {

enum class NoteKind : uint32_t {
  kPull = 0xFFFFFFFF,      // to a source, in PREPARE: tensors that the target copies itself
  kReady = 0xFFFFFFFE,     // to such a target: the version to stream is in place
  kContents = 0xFFFFFFFD,  // to it, at the boundary: the hashes of what it has copied
  kMemory = 0xFFFFFFFC,    // to the next slot: where this one's snapshots can be mapped
  kParts = 0xFFFFFFFB,     // to it: parts of a version that are in that memory
  kLate = 0xFFFFFFFA,      // to a target, at the boundary: hashes of what it has to copy then
};

// Those of one transition.
class StreamNotes {
 public:
  [[nodiscard]] static bool IsNote(uint32_t tensor) {
    return tensor >= static_cast<uint32_t>(NoteKind::kLate);
  }

  // A sender may send one note of a kind.
  absl::Status Take(MemberId sender, NoteKind kind, std::span<const char> bytes);
  // Waits for it. kCancelled after Cancel().
  absl::StatusOr<std::string> Wait(MemberId sender, NoteKind kind, Time deadline);
  [[nodiscard]] std::optional<std::string> Find(MemberId sender, NoteKind kind) const;
  void Cancel();

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<MemberId, NoteKind>, std::string> notes_ REWIRE_GUARDED_BY(mutex_);
  bool cancelled_ REWIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace rewire
