#include "net_plugin/verbs/receive_table.h"

#include "absl/strings/str_cat.h"

namespace rewire::net {

ReceiveTable::ReceiveTable(Comm* comm, ClearRing* ring, const std::string* peer)
    : ring_(ring), peer_(peer) {
  for (Receive& r : receives_) r.comm = comm;
}

Receive* ReceiveTable::Begin(uint64_t sequence, uint32_t count) {
  Receive& r = At(sequence);
  r.busy = true;
  r.sequence = sequence;
  r.count = r.left = count;
  r.cleared = false;
  ++unfinished_;
  return &r;
}

absl::StatusOr<Receive*> ReceiveTable::Find(uint32_t immediate) {
  const Immediate i = Unpack(immediate);
  Receive& r = At(i.sequence);
  if (r.busy && (r.sequence & kSequenceMask) == i.sequence && i.part < r.count) return &r;
  return absl::DataLossError(absl::StrCat(
      "receive from ", *peer_, ": a piece names no outstanding receive: sequence=", i.sequence,
      " buffer=", i.part, " piece=", i.piece));
}

absl::Status ReceiveTable::Arrive(uint32_t immediate, uint32_t bytes) {
  const absl::StatusOr<Receive*> found = Find(immediate);
  if (!found.ok()) return found.status();
  const Immediate i = Unpack(immediate);
  ReceivePart& part = (*found)->parts[i.part];
  const uint64_t bit = uint64_t{1} << i.piece;
  if ((part.pieces & bit) != 0) {
    return absl::DataLossError(absl::StrCat("receive message ", (*found)->sequence, " from ",
                                            *peer_, ": piece ", i.piece, " of buffer ", i.part,
                                            " arrived twice"));
  }
  part.pieces |= bit;
  if (i.apart) {
    const uint32_t* const total = ring_->Total((*found)->sequence, i.part);
    part.told = __atomic_load_n(total, __ATOMIC_RELAXED);
  }
  part.bytes += bytes;
  if (i.last) part.all = bit | (bit - 1);
  if (part.pieces != part.all) return absl::OkStatus();
  if (--(*found)->left == 0) --unfinished_;
  return absl::OkStatus();
}

Received ReceiveTable::Report(uint64_t next) const {
  Received received;
  received.next = next;
  for (const Receive& r : receives_) {
    if (!r.IsOpen()) continue;
    Received::Receive& out = received.receives.emplace_back();
    out.sequence = r.sequence;
    for (uint32_t i = 0; i < r.count; ++i) out.pieces.push_back(r.parts[i].pieces);
  }
  return received;
}

}  // namespace rewire::net
