// The sending end of a transition, and its budget; see outflow.h.
#include "reconfig/state/stream/outflow.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/counters.h"
#include "reconfig/state/stream/content.h"

namespace rewire::state {
namespace {

// Buffers on the wire: enough to keep sender and receiver busy, and few enough to stay in the
// cache.
constexpr size_t kBuffers = 8;
// Bytes read between two checks for a cancellation when the copy does not cross the wire.
constexpr uint64_t kTurnBytes = 64 << 20;

}  // namespace

bool Budget::Take(uint64_t bytes, Time deadline) {
  if (bytes > limit_) return false;
  MutexLock lock(&mutex_);
  while (out_ + bytes > limit_) {
    if (!changed_.WaitUntil(&mutex_, deadline) && out_ + bytes > limit_) return false;
  }
  out_ += bytes;
  peak_ = std::max(peak_, out_);
  Count(Counter::kBudgetInFlight, bytes);
  RaiseCounter(Counter::kBudgetPeak, peak_);
  return true;
}

void Budget::Give(uint64_t bytes) {
  {
    MutexLock lock(&mutex_);
    const uint64_t given = std::min(bytes, out_);
    out_ -= given;
    Count(Counter::kBudgetInFlight, -given);
  }
  changed_.NotifyAll();
}

uint64_t Budget::in_flight() const {
  MutexLock lock(&mutex_);
  return out_;
}

uint64_t Budget::peak() const {
  MutexLock lock(&mutex_);
  return peak_;
}

absl::Status Outflow::Send(const std::vector<Outgoing>& outgoing, uint64_t version, bool remember,
                           Time deadline) {
  for (const Outgoing& out : outgoing) {
    if (out.local) placed_.push_back({out.tensor, out.place, out.begin, out.end - out.begin, 0});
    for (uint64_t at = out.begin; at < out.end; at += out.local ? kTurnBytes : kFragmentBytes) {
      const absl::Status s =
          out.local ? CopyOne(out, at, remember) : SendOne(out, at, version, remember, deadline);
      if (!s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

absl::Status Outflow::CopyOne(const Outgoing& out, uint64_t at, bool remember) {
  const uint64_t bytes = std::min(kTurnBytes, out.end - at);
  const uint64_t from = at - out.begin;
  uint64_t content = 0;
  MutexLock lock(&reading_);
  if (cancelled_) return absl::CancelledError("the transition was aborted");
  const absl::Status s = memory_.CopyHashed(out.source, out.place, from, bytes, at, &content);
  placed_.back().content += content;
  return s.ok() && remember ? Remember(out, at, bytes, content) : s;
}

absl::Status Outflow::Remember(const Outgoing& out, uint64_t at, uint64_t bytes, uint64_t content) {
  const uint64_t from = at - out.begin;
  const auto [first, last] = sent_.equal_range({out.tensor, at});
  for (auto known = first; known != last; ++known) {
    const Sent& sent = known->second;
    const bool same = sent.source.part.data == out.source.part.data &&
                      sent.source.runs == out.source.runs && sent.at == from && sent.bytes == bytes;
    if (same) return sent.content == content ? absl::OkStatus() : Changed(out.tensor);
  }
  sent_.emplace(std::pair(out.tensor, at), Sent{out.source, from, bytes, content});
  return absl::OkStatus();
}

absl::Status Outflow::Changed(uint32_t tensor) const {
  return absl::FailedPreconditionError(
      absl::StrCat(TensorText(names_, tensor),
                   " changed outside the update (register a volatile tensor as rewireVolatile)"));
}

absl::StatusOr<uint64_t> Outflow::Content(const Outgoing& out) {
  uint64_t sum = 0;
  for (uint64_t at = out.begin; at < out.end; at += kTurnBytes) {
    uint64_t content = 0;
    MutexLock lock(&reading_);
    if (cancelled_) return absl::CancelledError("the transition was aborted");
    const absl::Status s =
        memory_.Hash(out.source, at - out.begin, std::min(kTurnBytes, out.end - at), at, &content);
    if (!s.ok()) return s;
    sum += content;
  }
  return sum;
}

absl::Status Outflow::SendNote(const WorldMember& target, NoteKind kind, std::string bytes,
                               Time deadline) {
  if (!budget_->Take(bytes.size(), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("send note to member ", target.member,
                                                    ": bytes=", bytes.size(),
                                                    ": no room in time within REWIRE_BUDGET_MB"));
  }
  Outgoing out;
  out.tensor = static_cast<uint32_t>(kind);
  out.target = target;
  std::string_view kept;
  {
    MutexLock lock(&mutex_);
    kept = notes_.emplace_back(std::move(bytes));
  }
  return SendBytes(out, 0, 0, kept, HashContent(kept.data(), kept.size(), 0), nullptr);
}

absl::Status Outflow::SendOne(const Outgoing& out, uint64_t at, uint64_t version, bool remember,
                              Time deadline) {
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(kFragmentBytes, out.end - at));
  const uint64_t from = at - out.begin;
  if (!budget_->Take(bytes, deadline)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "send ", TensorText(names_, out.tensor), " at byte ", at, " to member ", out.target.member,
        ": bytes=", bytes, ": no room in time within REWIRE_BUDGET_MB"));
  }
  char* buffer = nullptr;
  if (!out.stays) {
    const absl::StatusOr<char*> taken = TakeBuffer(deadline);
    if (!taken.ok()) {
      budget_->Give(bytes);
      return taken.status();
    }
    buffer = *taken;
  }
  uint64_t content = 0;
  absl::Status status;
  {
    MutexLock lock(&reading_);
    status = cancelled_ ? absl::CancelledError("the transition was aborted")
                        : memory_.Visit(out.source, from, bytes,
                                        [&](const char* data, size_t to, size_t n) {
                                          // Hash the copy in the buffer, because the program may
                                          // change the source meanwhile.
                                          if (buffer != nullptr) {
                                            std::memcpy(buffer + to, data, n);
                                            data = buffer + to;
                                          }
                                          content += HashContent(data, n, at + to);
                                          return absl::OkStatus();
                                        });
  }
  if (status.ok() && remember) status = Remember(out, at, bytes, content);
  if (!status.ok()) {
    budget_->Give(bytes);
    if (buffer == nullptr) return status;
    MutexLock lock(&mutex_);
    free_.push_back(buffer);
    return status;
  }
  const char* data = out.stays ? out.source.place().At(from).data : buffer;
  return SendBytes(out, at, version, {data, bytes}, content, buffer);
}

absl::Status Outflow::SendBytes(const Outgoing& out, uint64_t at, uint64_t version,
                                std::span<const char> bytes, uint64_t content, char* buffer) {
  OutFragment fragment;
  fragment.bytes = bytes;
  fragment.header.content = content;
  fragment.header.tensor = out.tensor;
  fragment.header.bytes = static_cast<uint32_t>(bytes.size());
  fragment.header.offset = at;
  fragment.header.version = version;
  bytes_on_wire_ += bytes.size();
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) {
      budget_->Give(bytes.size());
      return failure_;
    }
    ++unplaced_;
  }
  transport_->Send(key_, out.target, fragment,
                   [this, size = bytes.size(), buffer](const absl::Status& placed) {
                     Placed(size, buffer, placed);
                   });
  return absl::OkStatus();
}

void Outflow::Warm() {
  MutexLock lock(&mutex_);
  while (buffers_.size() < kBuffers) {
    buffers_.push_back(std::make_unique<char[]>(kFragmentBytes));
    free_.push_back(buffers_.back().get());
  }
}

absl::StatusOr<char*> Outflow::TakeBuffer(Time deadline) {
  MutexLock lock(&mutex_);
  if (free_.empty() && buffers_.size() < kBuffers) {
    buffers_.push_back(std::make_unique_for_overwrite<char[]>(kFragmentBytes));
    return buffers_.back().get();
  }
  while (free_.empty() && failure_.ok()) {
    if (!changed_.WaitUntil(&mutex_, deadline) && free_.empty() && failure_.ok()) {
      return absl::DeadlineExceededError(
          absl::StrCat(unplaced_, " fragments have not been placed by their receivers"));
    }
  }
  if (!failure_.ok()) return failure_;
  char* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void Outflow::Placed(uint64_t bytes, char* buffer, const absl::Status& status) {
  budget_->Give(bytes);
  MutexLock lock(&mutex_);
  --unplaced_;
  if (buffer != nullptr) free_.push_back(buffer);
  if (!status.ok() && failure_.ok()) failure_ = status;
  changed_.NotifyAll();
}

absl::Status Outflow::Recheck() {
  for (const auto& [key, sent] : sent_) {
    MutexLock lock(&reading_);
    if (cancelled_) return absl::CancelledError("the transition was aborted");
    uint64_t content = 0;
    const absl::Status read = memory_.Hash(sent.source, sent.at, sent.bytes, key.second, &content);
    if (!read.ok()) return read;
    if (content != sent.content) return Changed(key.first);
  }
  return absl::OkStatus();
}

absl::Status Outflow::WaitPlaced(Time deadline) {
  MutexLock lock(&mutex_);
  while (unplaced_ > 0 && failure_.ok()) {
    if (!changed_.WaitUntil(&mutex_, deadline) && unplaced_ > 0 && failure_.ok()) {
      return absl::DeadlineExceededError(
          absl::StrCat(unplaced_, " fragments have not been placed by their receivers"));
    }
  }
  return failure_;
}

void Outflow::Cancel() {
  MutexLock lock(&reading_);
  cancelled_ = true;
}

}  // namespace rewire::state
