// Keeps notes, and encodes and decodes their lists; see notes.h.
#include "reconfig/state/stream/notes.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"

namespace rewire::state {
namespace {

constexpr size_t kEncodedTensor = 4;
constexpr char kWrongCount[] = "the count does not fit the length";

}  // namespace

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

absl::Status MalformedNote(const char* note, std::string_view bytes, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("decode ", note, ": bytes=", bytes.size(), ": ", why));
}

std::string EncodeContents(std::span<const CopyContent> contents) {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(contents.size()));
  for (const CopyContent& c : contents) {
    out.Put(c.tensor);
    out.Put(c.begin);
    out.Put(c.content);
  }
  return out.Take();
}

absl::StatusOr<std::vector<CopyContent>> DecodeContents(std::string_view bytes) {
  std::vector<CopyContent> contents;
  ByteReader in(bytes);
  for (uint32_t left = in.GetCount(kEncodedContentBytes); left > 0 && in.ok(); --left) {
    CopyContent c;
    c.tensor = in.Get<uint32_t>();
    c.begin = in.Get<uint64_t>();
    c.content = in.Get<uint64_t>();
    contents.push_back(c);
  }
  if (!in.Finished()) return MalformedNote("hashes of copies", bytes, kWrongCount);
  return contents;
}

std::string EncodeTensors(std::span<const uint32_t> tensors) {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(tensors.size()));
  for (const uint32_t t : tensors) out.Put(t);
  return out.Take();
}

absl::StatusOr<std::vector<uint32_t>> DecodeTensors(std::string_view bytes) {
  std::vector<uint32_t> tensors;
  ByteReader in(bytes);
  for (uint32_t left = in.GetCount(kEncodedTensor); left > 0 && in.ok(); --left) {
    tensors.push_back(in.Get<uint32_t>());
  }
  if (!in.Finished()) return MalformedNote("tensors to copy", bytes, kWrongCount);
  return tensors;
}

}  // namespace rewire::state
