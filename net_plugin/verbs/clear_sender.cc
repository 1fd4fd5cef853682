#include "net_plugin/verbs/clear_sender.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

namespace rewire::net {
namespace {

// The value of Receive::rail for an entry on the control connection.
constexpr size_t kOnControl = 255;

}  // namespace

ClearSender::ClearSender(Connection* connection, ReceiveTable* table)
    : connection_(*connection), table_(*table), unsent_(connection->next) {}

void ClearSender::Send() {
  while (unsent_ < connection_.next) {
    if (!IsOwed(table_.At(unsent_))) {
      ++unsent_;
    } else if (!SendSome()) {
      return;
    }
  }
}

uint32_t ClearSender::PutKeys(const Receive& r, ClearToSend* entries) const {
  uint32_t keys = 0;
  for (size_t rail = 0; rail < connection_.rails(); ++rail) {
    bool all = true;
    for (uint32_t i = 0; i < r.count; ++i) {
      const rdma::MemoryRegion* const known = r.parts[i].memory->Find(connection_.NicOf(rail));
      entries[i].rkeys[rail] = known != nullptr ? known->rkey() : 0;
      all = all && known != nullptr;
    }
    if (all) keys |= 1U << rail;
  }
  return keys;
}

void ClearSender::SendKeys() {
  const uint32_t up = connection_.Up();
  for (Receive& r : table_) {
    if (!r.IsOpen() || !r.cleared || (up & ~r.keys) == 0) continue;
    for (uint32_t left = up & ~r.keys; left != 0; left &= left - 1) {
      const size_t nic = connection_.NicOf(static_cast<size_t>(std::countr_zero(left)));
      for (uint32_t i = 0; i < r.count; ++i) (void)r.parts[i].memory->Want(nic);
    }
    // Uses a copy of the ring's entries: a NIC may still be reading the ring.
    std::array<ClearToSend, kMaxRecvs> entries;
    std::copy_n(connection_.ring.Entries(r.sequence, r.count), r.count, entries.begin());
    const uint32_t keys = PutKeys(r, entries.data());
    if (keys != r.keys) SendEntries(r, entries.data());
    r.keys = keys;
  }
}

void ClearSender::SendEntries(const Receive& r, const ClearToSend* entries) {
  FrameHeader header = connection_.Header(FrameKind::kClear);
  header.sequence = r.sequence;
  connection_.control().SendFrame(
      header, {reinterpret_cast<const char*>(entries), r.count * sizeof(ClearToSend)});
}

uint32_t ClearSender::WaysFor(Receive* r) {
  r->keys = PutKeys(*r, connection_.ring.Entries(r->sequence, r->count));
  return connection_.Up() & r->keys;
}

bool ClearSender::SendSome() {
  const uint64_t first = unsent_;
  // Without a usable rail, the control connection carries the entry. SendKeys() sends the keys that
  // become known afterwards.
  const uint32_t ways = WaysFor(&table_.At(first));
  std::optional<size_t> rail = kOnControl;
  const uint32_t count = table_.At(first).count;
  uint64_t end = first + 1;
  if (ways == 0) {
    SendEntries(table_.At(first), connection_.ring.Entries(first, count));
  } else {
    while (end < connection_.next && end % kMaxRequests != 0 && IsOwed(table_.At(end)) &&
           (table_.At(end).count == 1) == (count == 1) && WaysFor(&table_.At(end)) == ways) {
      ++end;
    }
    const size_t bytes = ClearRing::Bytes(first, end, table_.At(end - 1).count);
    rail = connection_.Choose(bytes, ways);
    if (!rail) return false;  // a later call will find room
    if (!connection_.WriteClear(*rail, first, count, bytes)) return false;
  }
  for (uint64_t s = first; s < end; ++s) {
    table_.At(s).rail = *rail;
    table_.At(s).cleared = true;
  }
  unsent_ = end;
  return true;
}

void ClearSender::Settle(size_t rail, const Cleared& report) {
  for (Receive& r : table_) {
    if (!r.IsOpen() || !r.cleared || r.rail != rail) continue;
    const uint64_t ahead = r.sequence - report.head;
    const bool seen =
        r.sequence < report.head || (ahead < kMaxRequests && (report.seen >> ahead & 1) != 0);
    if (seen) continue;
    r.cleared = false;
    unsent_ = std::min(unsent_, r.sequence);
  }
  Send();
}

}  // namespace rewire::net
