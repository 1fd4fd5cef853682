// Short messages of a transition; see notes.h.
#include "reconfig/state/stream/notes.h"

#include "absl/strings/str_cat.h"

namespace rewire::state {

absl::Status StreamNotes::Take(MemberId sender, NoteKind kind, std::span<const char> bytes) {
  MutexLock lock(&mutex_);
  const bool fresh = notes_.try_emplace({sender, kind}, bytes.data(), bytes.size()).second;
  if (!fresh)
    return absl::InvalidArgumentError(absl::StrCat(
        "note from member ", sender, ": kind=", static_cast<uint32_t>(kind), ": received twice"));
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<std::string> StreamNotes::Wait(MemberId sender, NoteKind kind, Time deadline) {
  MutexLock lock(&mutex_);
  for (;;) {
    if (cancelled_) return absl::CancelledError("the transition was aborted");
    const auto found = notes_.find({sender, kind});
    if (found != notes_.end()) return found->second;
    if (!changed_.WaitUntil(&mutex_, deadline) && !notes_.contains({sender, kind}) && !cancelled_) {
      return absl::DeadlineExceededError(
          absl::StrCat("wait for member ", sender,
                       kind == NoteKind::kReady ? ": no report in time that its state is in place"
                                                : ": no hashes of its state in time"));
    }
  }
}

std::optional<std::string> StreamNotes::Find(MemberId sender, NoteKind kind) const {
  MutexLock lock(&mutex_);
  const auto found = notes_.find({sender, kind});
  if (found == notes_.end()) return std::nullopt;
  return found->second;
}

void StreamNotes::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

}  // namespace rewire::state
