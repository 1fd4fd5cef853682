#include "reconfig/state/stream/placed_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::state {
namespace {

// Bytes hashed between two checks for a cancellation.
constexpr uint64_t kTurnBytes = 64 << 20;

}  // namespace

absl::Status PlacedCheck::Run(const std::vector<PlacedBytes>& placed) {
  for (const PlacedBytes& p : placed) {
    uint64_t sum = 0;
    for (uint64_t at = 0; at < p.bytes; at += kTurnBytes) {
      uint64_t content = 0;
      MutexLock lock(&reading_);
      if (cancelled_) return absl::CancelledError("the transition was aborted");
      const absl::Status read =
          memory_.Hash(p.place, at, std::min(kTurnBytes, p.bytes - at), p.offset + at, &content);
      if (!read.ok()) return read;
      sum += content;
    }
    if (sum == p.content) continue;
    return absl::DataLossError(
        absl::StrCat(TensorText(names_, p.tensor), " at byte ", p.offset, ", bytes=", p.bytes,
                     ": the memory that the change has filled does not have the source's content"));
  }
  return absl::OkStatus();
}

void PlacedCheck::Cancel() {
  MutexLock lock(&reading_);
  cancelled_ = true;
}

}  // namespace rewire::state
