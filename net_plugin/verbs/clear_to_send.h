// The ring in the sender's memory into which the receiver writes where messages may go: one entry
// of 64 bytes for each buffer of each receive. The device writes it while the sender's thread
// looks: an entry counts when its last word says so, and a device writes a cache line in the order
// of its words, or at once. The receiver has the same ring to write from. Behind the entries, the
// other way round: bytes of messages that the sender tells apart from their data. Of the thread
// that moves the connection.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "net_plugin/core_abi.h"

namespace rewire::net {

// NICs that one connection uses at most, on either side.
inline constexpr size_t kMostRails = kMaxVirtual;

struct ClearToSend {
  uint64_t address = 0;
  uint32_t bytes = 0;  // room there
  int32_t tag = 0;
  std::array<uint32_t, kMostRails> rkeys{};  // by rail
  uint32_t count = 0;                        // buffers of this receive
  uint32_t carried = 0;                      // 1: sockets can bring it there, too
  uint64_t mark = 0;                         // the receive's sequence + 1
};
static_assert(sizeof(ClearToSend) == 64 && std::is_trivially_copyable_v<ClearToSend>);

class alignas(4096) ClearRing {
 public:
  // Receives of one buffer, which most are, have their entries next to each other: one WRITE of 64
  // bytes a receive tells of several.
  static constexpr size_t OffsetOf(uint64_t sequence, uint32_t count) {
    const size_t slot = sequence % kMaxRequests;
    return (count == 1 ? slot : kMaxRequests + slot * kMaxRecvs) * sizeof(ClearToSend);
  }
  // Bytes from the first entry of receive `first` to the last of receive `end` - 1, which has
  // `count` buffers. All of them have one buffer, or all have several, and `end` is at most the
  // next multiple of kMaxRequests.
  static constexpr size_t Bytes(uint64_t first, uint64_t end, uint32_t count) {
    const uint64_t stride = count == 1 ? 1 : kMaxRecvs;
    return ((end - 1 - first) * stride + count) * sizeof(ClearToSend);
  }
  static constexpr size_t OffsetOfTotal(uint64_t sequence, uint32_t part) {
    return sizeof(singles_) + sizeof(entries_) +
           (sequence % kMaxRequests * kMaxRecvs + part) * sizeof(totals_[0][0]);
  }
  // Bytes of the message for buffer `part` of this receive.
  [[nodiscard]] uint32_t* Total(uint64_t sequence, uint32_t part) {
    return &totals_[sequence % kMaxRequests][part];
  }
  // The entries of a receive of `count` buffers.
  [[nodiscard]] ClearToSend* Entries(uint64_t sequence, uint32_t count) {
    const size_t slot = sequence % kMaxRequests;
    return count == 1 ? &singles_[slot] : entries_[slot].data();
  }
  // The entry for buffer `part` of this receive, once it is there.
  [[nodiscard]] std::optional<ClearToSend> Read(uint64_t sequence, uint32_t part) {
    const ClearToSend* entry = Entries(sequence, 1);
    if (part > 0 || !IsMarked(*entry, sequence)) {
      entry = Entries(sequence, kMaxRecvs) + part;
      if (!IsMarked(*entry, sequence)) return {};
    }
    const auto* from = reinterpret_cast<const uint64_t*>(entry);
    std::array<uint64_t, sizeof(ClearToSend) / 8> words;
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
    }
    return std::bit_cast<ClearToSend>(words);
  }
  // Whether all of this receive is there.
  [[nodiscard]] bool Whole(uint64_t sequence) {
    const std::optional<ClearToSend> first = Read(sequence, 0);
    if (!first || first->count == 0 || first->count > kMaxRecvs) return false;
    for (uint32_t part = 1; part < first->count; ++part) {
      if (!Read(sequence, part)) return false;
    }
    return true;
  }

 private:
  static bool IsMarked(const ClearToSend& entry, uint64_t sequence) {
    return __atomic_load_n(&entry.mark, __ATOMIC_ACQUIRE) == sequence + 1;
  }

  std::array<ClearToSend, kMaxRequests> singles_{};
  std::array<std::array<ClearToSend, kMaxRecvs>, kMaxRequests> entries_{};
  std::array<std::array<uint32_t, kMaxRecvs>, kMaxRequests> totals_{};
};

}  // namespace rewire::net
