// Copies from the sources' memory; see pull.h.
#include "reconfig/state/stream/pull.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/log.h"

namespace rewire::state {
namespace {

// A smaller piece is not worth a mapping.
constexpr uint64_t kLeastBytes = 64 << 10;
// The hashes of one source's copies must fit one note.
constexpr size_t kMostPieces = 40000;
static_assert(kMostPieces * kEncodedContentBytes < kFragmentBytes);
// Bytes copied between two checks for a cancellation.
constexpr uint64_t kTurnBytes = 64 << 20;

}  // namespace

void Pull::TakeFrom(MemberId source, const PeerOffer& offer, const std::vector<Incoming>& incoming,
                    Time deadline) {
  size_t count = 0;
  for (const OfferedTensor& offered : offer.tensors) {
    std::vector<Incoming> wanted;
    for (const Incoming& in : incoming) {
      if (in.source == source && in.tensor == offered.tensor) wanted.push_back(in);
    }
    // All pieces of a tensor are taken or none, because the note to a source lists tensors.
    const bool suits = std::all_of(wanted.begin(), wanted.end(), [&](const Incoming& in) {
      return in.place.part.kind == MemoryKind::kDevice && in.end - in.begin >= kLeastBytes &&
             in.from.end() <= offered.bytes();
    });
    if (wanted.empty() || !suits || count + wanted.size() > kMostPieces) continue;
    const bool late = wanted[0].late;
    const absl::StatusOr<StatePlace> part =
        (late ? late_mappings_ : mappings_)
            .Open(offered, offer.server, wanted[0].place.part.context, deadline);
    if (!part.ok()) {
      REWIRE_DEBUG("tensor %u of member %u is sent as bytes: %s", offered.tensor, source,
                   std::string(part.status().message()).c_str());
      continue;
    }
    for (const Incoming& in : wanted) {
      (late ? late_ : pieces_)[source].push_back(
          {in.tensor, in.begin, in.end - in.begin, {*part, in.from}, in.place, 0});
    }
    count += wanted.size();
  }
}

std::vector<uint32_t> Pull::TensorsOf(MemberId source) const {
  std::vector<uint32_t> tensors;
  for (const Pieces* all : {&pieces_, &late_}) {
    const auto found = all->find(source);
    if (found == all->end()) continue;
    for (const Piece& piece : found->second) {
      if (tensors.empty() || tensors.back() != piece.tensor) tensors.push_back(piece.tensor);
    }
  }
  return tensors;
}

absl::Status Pull::Fetch(Time deadline) {
  const absl::Cleanup unmap = [this] { mappings_.CloseAll(); };
  for (auto& [source, pieces] : pieces_) {
    const auto ready = notes_->Wait(source, NoteKind::kReady, deadline);
    if (!ready.ok()) return ready.status();
    for (Piece& piece : pieces) {
      if (absl::Status s = FetchPiece(&piece); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

absl::Status Pull::FetchLate(Time deadline) {
  const absl::Cleanup unmap = [this] { late_mappings_.CloseAll(); };
  for (auto& [source, pieces] : late_) {
    const auto note = notes_->Wait(source, NoteKind::kLate, deadline);
    if (!note.ok()) return note.status();
    for (Piece& piece : pieces) {
      if (absl::Status s = FetchPiece(&piece); !s.ok()) return s;
    }
    if (absl::Status s = Agree(source, *note, pieces); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Pull::FetchPiece(Piece* piece) {
  for (uint64_t at = 0; at < piece->bytes; at += kTurnBytes) {
    const uint64_t n = std::min(kTurnBytes, piece->bytes - at);
    uint64_t content = 0;
    MutexLock lock(&copying_);
    if (cancelled_) return absl::CancelledError("the transition was aborted");
    const absl::Status s =
        memory_.CopyHashed(piece->from, piece->to, at, n, piece->begin + at, &content);
    if (!s.ok()) return s;
    piece->content += content;
    bytes_ += n;
  }
  return absl::OkStatus();
}

absl::Status Pull::Check(Time deadline) {
  if (absl::Status s = FetchLate(deadline); !s.ok()) return s;
  for (const auto& [source, pieces] : pieces_) {
    const auto note = notes_->Wait(source, NoteKind::kContents, deadline);
    if (!note.ok()) return note.status();
    if (absl::Status s = Agree(source, *note, pieces); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Pull::Agree(MemberId source, std::string_view note,
                         const std::vector<Piece>& pieces) const {
  const auto listed = DecodeContents(note);
  if (!listed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("member ", source, ": ", std::string(listed.status().message())));
  }
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> contents;
  for (const CopyContent& c : *listed) contents[{c.tensor, c.begin}] = c.content;
  for (const Piece& piece : pieces) {
    const auto found = contents.find({piece.tensor, piece.begin});
    if (found != contents.end() && found->second == piece.content) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        TensorText(names_, piece.tensor), " of member ", source,
        " changed outside the update, or was not copied exactly (register a volatile tensor as "
        "rewireVolatile)"));
  }
  return absl::OkStatus();
}

std::vector<PlacedBytes> Pull::Placed() const {
  std::vector<PlacedBytes> placed;
  for (const Pieces* all : {&pieces_, &late_}) {
    for (const auto& [source, pieces] : *all) {
      for (const Piece& p : pieces) {
        placed.push_back({p.tensor, p.to, p.begin, p.bytes, p.content});
      }
    }
  }
  return placed;
}

void Pull::Cancel() {
  MutexLock lock(&copying_);
  cancelled_ = true;
}

}  // namespace rewire::state
