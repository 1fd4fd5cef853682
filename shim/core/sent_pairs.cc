#include "shim/core/sent_pairs.h"

#include <algorithm>

namespace rewire::shim {

namespace {

// ncclAlltoAll is made of a send to each rank.
bool HasAlltoAll(const VirtualCommunicator& comm) {
  const auto& seen = comm.seen[static_cast<unsigned>(Collective::kAlltoAll)];
  return std::any_of(std::begin(seen), std::end(seen), [](const auto& counts) {
    return counts.load(std::memory_order_relaxed) != 0;
  });
}

}  // namespace

SentPairs::SentPairs(uint32_t ranks)
    : ranks_(ranks <= kMostRanks ? ranks : 0),
      row_((ranks_ + 7) / 8),
      bytes_(std::max<size_t>(ranks_ * row_, 1)) {}

void SentPairs::AddSentBy(const VirtualCommunicator& comm, uint32_t rank) {
  if (rank >= ranks_) return;
  const bool all = HasAlltoAll(comm);
  const PeerCounters* const peers = comm.peers.load(std::memory_order_acquire);
  const auto counted =
      static_cast<uint32_t>(peers != nullptr ? comm.peer_count.load(std::memory_order_relaxed) : 0);
  for (uint32_t to = 0; to < ranks_; ++to) {
    const bool sent = counted == ranks_ && peers[to].sent.load(std::memory_order_relaxed) != 0;
    if (to != rank && (all || sent)) bytes_[rank * row_ + to / 8] |= uint8_t{1} << (to % 8);
  }
}

bool SentPairs::Has(uint32_t from, uint32_t to) const {
  return from < ranks_ && to < ranks_ && (bytes_[from * row_ + to / 8] >> (to % 8) & 1) != 0;
}

uint32_t SentPairs::MostOfARank() const {
  uint32_t most = 0;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    uint32_t sends = 0;
    uint32_t receives = 0;
    for (uint32_t peer = 0; peer < ranks_; ++peer) {
      sends += Has(rank, peer) ? 1 : 0;
      receives += Has(peer, rank) ? 1 : 0;
    }
    most = std::max({most, sends, receives});
  }
  return most;
}

bool SentPairs::empty() const {
  return ranks_ == 0 || std::all_of(bytes_.begin(), bytes_.end(), [](uint8_t b) { return b == 0; });
}

}  // namespace rewire::shim
