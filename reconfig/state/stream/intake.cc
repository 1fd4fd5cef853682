// The receiving end of a transition; see intake.h.
#include "reconfig/state/stream/intake.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::state {

Intake::Intake(std::vector<Incoming> incoming, StreamNotes* notes, TensorNames names)
    : notes_(notes), names_(std::move(names)), incoming_(std::move(incoming)) {
  MutexLock lock(&mutex_);
  for (const Incoming& in : incoming_) {
    for (uint64_t at = in.begin; at < in.end; at += kFragmentBytes) {
      const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(kFragmentBytes, in.end - at));
      expected_[{in.source, in.tensor, at}] = {bytes, &in, false};
    }
  }
  missing_ = expected_.size();
}

void Intake::Withdraw(MemberId source, std::span<const uint32_t> tensors) {
  MutexLock lock(&mutex_);
  missing_ -= std::erase_if(expected_, [&](const auto& entry) {
    return std::get<0>(entry.first) == source &&
           std::find(tensors.begin(), tensors.end(), std::get<1>(entry.first)) != tensors.end();
  });
}

absl::Status Intake::Take(MemberId sender, const FragmentHeader& header,
                          std::span<const char> bytes) {
  if (notes_ != nullptr && StreamNotes::IsNote(header.tensor)) {
    return notes_->Take(sender, static_cast<NoteKind>(header.tensor), bytes);
  }
  const Incoming* in = nullptr;
  {
    MutexLock lock(&mutex_);
    const auto it = expected_.find({sender, header.tensor, header.offset});
    if (it == expected_.end() || it->second.bytes != bytes.size() || it->second.arrived) {
      return absl::InvalidArgumentError(absl::StrCat(
          "fragment from member ", sender, ": tensor=", header.tensor, " offset=", header.offset,
          " bytes=", bytes.size(), ": not in the plan, or received twice"));
    }
    in = it->second.in;
  }
  // Only the transport's thread calls Take(), so this entry cannot change meanwhile.
  const absl::Status written =
      memory_.Write(bytes.data(), in->place, header.offset - in->begin, bytes.size());
  MutexLock lock(&mutex_);
  if (!written.ok()) {
    if (failure_.ok()) failure_ = written;
  } else {
    expected_[{sender, header.tensor, header.offset}].arrived = true;
    --missing_;
    bytes_ += bytes.size();
    contents_[in] += header.content;
  }
  if (missing_ == 0 || !failure_.ok()) changed_.NotifyAll();
  return written;
}

void Intake::Corrupted(MemberId sender, const FragmentHeader& header) {
  MutexLock lock(&mutex_);
  if (failure_.ok()) {
    failure_ = absl::DataLossError(absl::StrCat(
        "fragment from member ", sender, ": ", TensorText(names_, header.tensor), " at byte ",
        header.offset, ": the content does not match the hash in the header"));
  }
  changed_.NotifyAll();
}

absl::Status Intake::Wait(Time deadline) {
  MutexLock lock(&mutex_);
  while (missing_ > 0 && failure_.ok()) {
    if (!changed_.WaitUntil(&mutex_, deadline) && missing_ > 0 && failure_.ok()) {
      std::string example;
      for (const auto& [key, e] : expected_) {
        if (e.arrived) continue;
        example = absl::StrCat(TensorText(names_, std::get<1>(key)), " byte ", std::get<2>(key),
                               " from member ", std::get<0>(key));
        break;
      }
      return absl::DeadlineExceededError(absl::StrCat(
          "receive state: ", missing_, " fragments have not arrived, first: ", example));
    }
  }
  return failure_;
}

std::vector<PlacedBytes> Intake::Placed() const {
  std::vector<PlacedBytes> placed;
  MutexLock lock(&mutex_);
  for (const auto& [in, content] : contents_) {
    placed.push_back({in->tensor, in->place, in->begin, in->end - in->begin, content});
  }
  return placed;
}

void Intake::Cancel() {
  MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = absl::CancelledError("the transition was aborted");
  changed_.NotifyAll();
}

uint64_t Intake::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace rewire::state
