#include "net_plugin/verbs/send_message.h"

#include <algorithm>

namespace rewire::net {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

void SendMessage::Cut(size_t least_bytes) {
  const size_t even = (bytes + kMostPieces - 1) / kMostPieces;
  piece_bytes = std::max(least_bytes, (even + kPage - 1) / kPage * kPage);
  pieces = static_cast<uint32_t>(std::max<size_t>((bytes + piece_bytes - 1) / piece_bytes, 1));
  waiting = all();
  done = 0;
}

bool SendMessage::Settle(size_t failed_rail, const Received& report) {
  if (pieces == 0) return true;
  uint64_t on_rail = 0;  // pieces posted on this rail
  for (uint32_t p = 0; p < pieces; ++p) {
    if (rail[p] == failed_rail) on_rail |= uint64_t{1} << p;
  }
  on_rail &= ~waiting;
  const auto named =
      std::find_if(report.receives.begin(), report.receives.end(),
                   [this](const Received::Receive& r) { return r.sequence == sequence; });
  uint64_t arrived = sequence < report.next ? ~uint64_t{0} : 0;
  if (named != report.receives.end()) {
    arrived = part < named->pieces.size() ? named->pieces[part] : 0;
  }
  const uint64_t missing = on_rail & ~arrived;
  if (missing != 0 && !busy) return false;
  done = (done | (on_rail & arrived)) & ~missing;
  waiting |= missing;
  return true;
}

void SendMessage::Finish() {
  done = all();
  waiting = 0;
}

}  // namespace rewire::net
