// Sends copies to the next slot and takes those of the slot before; see buddy_link.h.
#include "reconfig/state/snapshot/buddy_link.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/state/snapshot/slot_notes.h"
#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/peer_offer.h"

namespace rewire::state {

BuddyLink::BuddyLink(Transport* transport, Budget* budget, Options options)
    : transport_(transport), budget_(budget), options_(std::move(options)) {}

SnapshotSlots::Memory BuddyLink::Start(SnapshotSlots::Shape kept,
                                       std::optional<Neighbours> neighbours) {
  // Mapped memory belongs to the world before. Own memory is allocated when bytes come.
  SnapshotSlots::Memory dropped = kept_.Reset(std::move(kept), {}, SnapshotSlots::Keep::kNothing);
  offered_ = mapped_ = false;
  has_next_ = neighbours.has_value();
  if (has_next_) {
    if (neighbours->key.epoch != neighbours_.key.epoch) {
      failed_ = false;
      forgotten_.reset();
    }
    neighbours_ = *std::move(neighbours);
  }
  stopped_ = false;
  if (has_next_) OpenStream();
  return dropped;
}

void BuddyLink::Stop() {
  stopped_ = true;
  if (has_next_) transport_->Close(neighbours_.key);
}

void BuddyLink::OpenStream() { transport_->Open(neighbours_.key, {neighbours_.previous}, this); }

absl::Status BuddyLink::Send(uint64_t version, SnapshotSlots* own) {
  if (!has_next_ || !NextAnswers()) return absl::OkStatus();
  if (forgotten_) {
    const absl::Status status = Deliver(own, [this](Outflow* outflow) {
      return outflow->SendNote(neighbours_.next, NoteKind::kForget, EncodeForget(*forgotten_),
                               Now() + options_.stall);
    });
    if (!status.ok()) return status;
    forgotten_.reset();
  }
  if (own->bytes() > 0 && !own->Arrived(version)) {
    return absl::FailedPreconditionError("this slot's own copy is not complete");
  }
  OfferMemory(own);
  return Deliver(own, [&](Outflow* outflow) {
    return mapped_ ? SendParts(version, *own, outflow) : SendBytes(version, *own, outflow);
  });
}

bool BuddyLink::NextAnswers() {
  if (!failed_ || !options_.answers) return true;
  if (Now() < ask_again_) return false;
  if (options_.answers(neighbours_.next)) return true;
  ask_again_ = Now() + options_.stall;
  return false;
}

void BuddyLink::OfferMemory(SnapshotSlots* own) {
  if (offered_ || !options_.node_of) return;
  const std::string node = options_.node_of(neighbours_.next);
  if (node.empty()) return;  // unknown now; asked again with the next version
  offered_ = true;
  if (node != NodeIdentity()) return;
  const absl::StatusOr<MemoryFiles> fds = own->Share();
  if (!fds.ok()) return;
  const SharedSnapshots shared{getpid(), *fds};
  Outflow outflow(neighbours_.key, transport_, budget_);
  const Time deadline = Now() + options_.stall;
  absl::Status status = outflow.SendNote(neighbours_.next, NoteKind::kMemory,
                                         EncodeSharedSnapshots(shared), deadline);
  if (status.ok()) status = outflow.WaitPlaced(deadline);
  mapped_ = status.ok();
  if (mapped_) return;
  own->LeaveMemory();  // the next slot may have mapped it
  // Unanswered fragments still refer to `outflow`, and a stream that has failed stays failed.
  transport_->Close(neighbours_.key);
  if (!stopped_) OpenStream();
}

template <typename SendBy>
absl::Status BuddyLink::Deliver(SnapshotSlots* own, SendBy&& send) {
  if (stopped_) return absl::CancelledError("the world is changing");
  absl::Status status;
  {
    Outflow outflow(neighbours_.key, transport_, budget_);
    status = send(&outflow);
    if (status.ok()) status = outflow.WaitPlaced(Now() + options_.stall);
    bytes_sent_ += outflow.bytes_on_wire();
    // Fragments on the wire refer to `outflow`.
    if (!status.ok()) transport_->Close(neighbours_.key);
  }
  // The next slot may have dropped its mapping, or may be restoring from it.
  if (!status.ok() && std::exchange(mapped_, false)) own->LeaveMemory();
  failed_ = !status.ok();
  if (failed_ && !stopped_) OpenStream();
  return status;
}

absl::Status BuddyLink::SendBytes(uint64_t version, const SnapshotSlots& own, Outflow* outflow) {
  std::vector<Outgoing> outgoing;
  for (uint32_t t = 0; t < neighbours_.sent.size(); ++t) {
    const Box& box = neighbours_.sent[t];
    if (box.empty()) continue;
    Outgoing out;
    out.tensor = t;
    out.begin = box.begin * neighbours_.element_bytes[t];
    out.end = box.end * neighbours_.element_bytes[t];
    // This thread alone writes to the piece, and only after the send.
    out.source.part.data = const_cast<char*>(own.Piece(version, t));
    out.source.runs = Runs(0, out.end - out.begin);
    out.target = neighbours_.next;
    out.stays = true;
    outgoing.push_back(out);
  }
  return outflow->Send(outgoing, version, false, Now() + options_.stall);
}

absl::Status BuddyLink::SendParts(uint64_t version, const SnapshotSlots& own, Outflow* outflow) {
  uint32_t index = 0;
  std::vector<ListedPart> parts = own.List(version, &index);
  std::erase_if(parts, [&](const auto& p) { return neighbours_.sent[p.tensor].empty(); });
  for (size_t first = 0; first < parts.size(); first += kMostListedParts) {
    const size_t count = std::min(kMostListedParts, parts.size() - first);
    const absl::Status s =
        outflow->SendNote(neighbours_.next, NoteKind::kParts,
                          EncodePartList(version, index, std::span(parts).subspan(first, count)),
                          Now() + options_.stall);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status BuddyLink::Take(MemberId /*sender*/, const FragmentHeader& header,
                             std::span<const char> bytes) {
  if (stopped_) {
    return absl::FailedPreconditionError(
        absl::StrCat("snapshot: version=", header.version, ": no snapshots during a transition"));
  }
  if (header.tensor == static_cast<uint32_t>(NoteKind::kMemory)) return TakeMemory(bytes);
  if (header.tensor == static_cast<uint32_t>(NoteKind::kParts)) return TakeParts(bytes);
  if (header.tensor == static_cast<uint32_t>(NoteKind::kForget)) return TakeForget(bytes);
  return kept_.Put(header.version, header.tensor, header.offset, bytes, header.content);
}

absl::Status BuddyLink::TakeMemory(std::span<const char> bytes) {
  const auto shared = DecodeSharedSnapshots({bytes.data(), bytes.size()});
  if (!shared.ok()) return shared.status();
  return kept_.MapOf(shared->owner, shared->descriptors);
}

absl::Status BuddyLink::TakeParts(std::span<const char> bytes) {
  const auto list = DecodePartList({bytes.data(), bytes.size()});
  if (!list.ok()) return list.status();
  return kept_.TakeList(list->version, list->index, list->parts);
}

absl::Status BuddyLink::TakeForget(std::span<const char> bytes) {
  const auto version = DecodeForget({bytes.data(), bytes.size()});
  if (!version.ok()) return version.status();
  kept_.Forget(*version);
  return absl::OkStatus();
}

void BuddyLink::Corrupted(MemberId sender, const FragmentHeader& header) {
  REWIRE_WARN("snapshot: tensor=%u version=%llu: corrupted fragment from member %u", header.tensor,
              static_cast<unsigned long long>(header.version), sender);
}

}  // namespace rewire::state
