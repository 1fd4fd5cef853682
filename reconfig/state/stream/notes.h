// Short messages between two members, sent as fragments with reserved tensor numbers, and the
// lists in them; docs/stream.md has the bytes. The transport's thread calls Take(), the thread that
// runs the transition calls the other methods of StreamNotes. Cancel() is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/world/world.h"

namespace rewire::state {

enum class NoteKind : uint32_t {
  kPull = 0xFFFFFFFF,      // to a source, in PREPARE: tensors that the target copies itself
  kReady = 0xFFFFFFFE,     // to such a target: the version to stream is in place
  kContents = 0xFFFFFFFD,  // to such a target, at the boundary: the hashes of its copies
  kMemory = 0xFFFFFFFC,    // to the next slot: how it can map this slot's snapshots
  kParts = 0xFFFFFFFB,     // to the next slot: parts of a version that are in that memory
  kLate = 0xFFFFFFFA,  // to a target, at the boundary: hashes of the bytes that it has to copy then
  kForget = 0xFFFFFFF9,  // to the next slot: its copies up to a version are not the state
};

// The notes of one transition.
class StreamNotes {
 public:
  [[nodiscard]] static bool IsNote(uint32_t tensor) {
    return tensor >= static_cast<uint32_t>(NoteKind::kForget);
  }

  // Stores a note. Fails when this sender has sent a note of this kind before.
  absl::Status Take(MemberId sender, NoteKind kind, std::span<const char> bytes);
  // Waits for the note. Returns kCancelled after Cancel().
  absl::StatusOr<std::string> Wait(MemberId sender, NoteKind kind, Time deadline);
  [[nodiscard]] std::optional<std::string> Find(MemberId sender, NoteKind kind) const;
  void Cancel();

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<MemberId, NoteKind>, std::string> notes_ REWIRE_GUARDED_BY(mutex_);
  bool cancelled_ REWIRE_GUARDED_BY(mutex_) = false;
};

// Returns the error for a note whose bytes break a rule: kInvalidArgument, "decode NOTE: bytes=N:
// WHY".
[[nodiscard]] absl::Status MalformedNote(const char* note, std::string_view bytes, const char* why);

// The lists that a target and its sources exchange about copies are notes too. Decoding accepts any
// bytes. Pure and thread-safe.
//
// The hash of one copy's bytes, which begin at byte `begin` of the tensor.
struct CopyContent {
  uint32_t tensor = 0;
  uint64_t begin = 0;
  uint64_t content = 0;
};
inline constexpr size_t kEncodedContentBytes = 4 + 8 + 8;  // of one hash in the list
std::string EncodeContents(std::span<const CopyContent> contents);
absl::StatusOr<std::vector<CopyContent>> DecodeContents(std::string_view bytes);

// The tensors that the target copies by itself.
std::string EncodeTensors(std::span<const uint32_t> tensors);
absl::StatusOr<std::vector<uint32_t>> DecodeTensors(std::string_view bytes);

}  // namespace rewire::state
