// The sending end; see outflow.h.
#include "reconfig/stream/outflow.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/stream/content.h"

namespace rewire {

absl::Status Outflow::Send(const std::vector<Outgoing>& outgoing, uint64_t version, bool remember,
                           Time deadline) {
  for (const Outgoing& out : outgoing) {
    for (uint64_t at = out.begin; at < out.end; at += kFragmentBytes) {
      if (absl::Status s = SendOne(out, at, version, remember, deadline); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

absl::Status Outflow::SendOne(const Outgoing& out, uint64_t at, uint64_t version, bool remember,
                              Time deadline) {
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(kFragmentBytes, out.end - at));
  if (!budget_->Take(bytes, deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("no room within REWIRE_BUDGET_MB for tensor ", out.tensor, " byte ", at));
  }
  OutFragment fragment;
  fragment.bytes.resize(bytes);
  const StatePlace source = out.source.At(at - out.begin);
  absl::Status status;
  {
    MutexLock lock(&reading_);
    status = cancelled_ ? absl::CancelledError("the transition was abandoned")
                        : memory_.Read(source, fragment.bytes.data(), bytes);
    if (status.ok()) {
      fragment.header.content = HashContent(fragment.bytes.data(), bytes, at);
      if (out.local)
        status = memory_.Write(fragment.bytes.data(), out.place.At(at - out.begin), bytes);
    }
  }
  if (!status.ok() || out.local) budget_->Give(bytes);
  if (!status.ok()) return status;
  if (remember) sent_[{out.tensor, at}] = {source, bytes, fragment.header.content};
  if (out.local) return absl::OkStatus();
  fragment.header.tensor = out.tensor;
  fragment.header.bytes = bytes;
  fragment.header.offset = at;
  fragment.header.version = version;
  bytes_on_wire_ += bytes;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) {
      budget_->Give(bytes);
      return failure_;
    }
    ++unplaced_;
  }
  transport_->Send(key_, out.target, std::move(fragment),
                   [this, bytes](absl::Status placed) { Placed(bytes, placed); });
  return absl::OkStatus();
}

void Outflow::Placed(uint64_t bytes, const absl::Status& status) {
  budget_->Give(bytes);
  MutexLock lock(&mutex_);
  --unplaced_;
  if (!status.ok() && failure_.ok()) failure_ = status;
  changed_.NotifyAll();
}

absl::Status Outflow::Recheck() {
  std::vector<char> bytes;
  for (const auto& [key, sent] : sent_) {
    MutexLock lock(&reading_);
    if (cancelled_) return absl::CancelledError("the transition was abandoned");
    const char* data = sent.source.data;
    if (sent.source.kind == MemoryKind::kDevice) {
      bytes.resize(sent.bytes);
      if (absl::Status s = memory_.Read(sent.source, bytes.data(), sent.bytes); !s.ok()) return s;
      data = bytes.data();
    }
    if (HashContent(data, sent.bytes, key.second) != sent.content) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor ", key.first, " changed outside the update, at bytes [", key.second,
                       ", ", key.second + sent.bytes, "): is it volatile?"));
    }
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

}  // namespace rewire
