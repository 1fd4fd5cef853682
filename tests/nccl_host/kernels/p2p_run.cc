#include "tests/nccl_host/kernels/p2p_run.h"

#include <algorithm>
#include <cstring>

#include "tests/nccl_host/kernels/connection_end.h"
#include "tests/nccl_host/kernels/lines.h"

namespace nccl_host {
namespace {

// u32fp8Decode of src/include/bitops.h:431 (2.28.9): 3 bits of mantissa, 5 of exponent.
size_t ChunkBytes(uint8_t packed) {
  const uint32_t exponent = packed >> 3;
  const uint32_t mantissa = (packed & 7u) | (exponent != 0 ? 8u : 0u);
  return size_t{mantissa} << (exponent != 0 ? exponent - 1 : 0);
}

struct Range {
  size_t begin, end;
};

// ncclP2pPartBounds of src/include/device.h:254 (2.28.9).
Range PartOf(int parts, int part, size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t each = (bytes + static_cast<size_t>(parts) - 1) / static_cast<size_t>(parts);
  const size_t size = (each + kPage - 1) / kPage * kPage;
  const auto index = static_cast<size_t>(part);
  return {std::min(index * size, bytes), std::min((index + 1) * size, bytes)};
}

class Copy {
 public:
  Copy(Connection* connection, bool sends, bool ll, char* data, size_t bytes, size_t chunk,
       size_t ll_slot)
      : end_(connection, 1),
        sends_(sends),
        ll_(ll),
        data_(data),
        bytes_(bytes),
        chunk_(chunk),
        ll_slot_(ll_slot) {}

  [[nodiscard]] bool done() const { return done_; }
  // Moves one slot if the peer is ready; returns false otherwise.
  bool Advance() {
    const size_t size = std::min(chunk_, bytes_ - at_);
    if (!(ll_ ? MoveLines(size) : MoveSlot(size))) return false;
    at_ += size;
    if (at_ >= bytes_) {
      done_ = true;
      end_.Keep();
    }
    return true;
  }

 private:
  bool MoveSlot(size_t size) {
    if (!(sends_ ? end_.IsFree(1) : end_.IsFilled(1))) return false;
    if (sends_) {
      end_.Announce(static_cast<int64_t>(size));
      std::memcpy(end_.Slot(kSimple, 0), data_ + at_, size);
      end_.Advance(1);
      end_.PostTail();
    } else {
      std::memcpy(data_ + at_, end_.Slot(kSimple, 0), size);
      end_.Advance(1);
      end_.PostHead();
    }
    return true;
  }

  bool MoveLines(size_t size) {
    const size_t lines = (size + kLLData - 1) / kLLData;
    auto* const line = reinterpret_cast<LLLine*>(end_.Slot(kLL, ll_slot_));
    const uint32_t flag = LLFlag(end_.step());
    const auto data_of = [&](size_t i) { return std::min(kLLData, size - kLLData * i); };
    if (sends_) {
      if (!end_.IsFree(1)) return false;
      end_.Announce(static_cast<int64_t>(lines * sizeof(LLLine)));
      for (size_t i = 0; i < lines; ++i) {
        uint64_t word = 0;
        std::memcpy(&word, data_ + at_ + kLLData * i, data_of(i));
        WriteLine(line + i, word, flag);
      }
      end_.Advance(1);
      return true;
    }
    if (!end_.IsDelivered()) return false;
    for (; line_ < lines; ++line_) {
      uint64_t word = 0;
      if (!ReadLine(line + line_, flag, &word)) return false;
      std::memcpy(data_ + at_ + kLLData * line_, &word, data_of(line_));
    }
    line_ = 0;
    end_.Advance(1);
    end_.PostHead();
    return true;
  }

  ConnectionEnd end_;
  bool sends_, ll_;
  char* data_;
  size_t bytes_, chunk_, ll_slot_;
  size_t at_ = 0;
  size_t line_ = 0;  // lines of the slot that have been received
  bool done_ = false;
};

}  // namespace

void RunSendsAndReceives(const BlockPlace& place, const std::vector<P2pWork>& works) {
  const Communicator& communicator = *place.communicator;
  const auto ll_slot = static_cast<size_t>(communicator.buffer_sizes[kLL] / kSteps);
  std::vector<Copy> copies;
  for (const P2pWork& work : works) {
    const int part = (place.channel_id - work.first_channel) & (work.channels - 1);
    const bool sends = part < work.send_channels;
    const bool receives = part < work.receive_channels;
    if (work.send_rank == communicator.rank) {
      if (!sends || work.send_address == work.receive_address) continue;
      const Range range = PartOf(work.send_channels, part, work.send_bytes);
      std::memmove(work.receive_address + range.begin, work.send_address + range.begin,
                   range.end - range.begin);
      continue;
    }
    if (sends) {
      const Range range = PartOf(work.send_channels, part, work.send_bytes);
      copies.emplace_back(&place.channel->peers[work.send_rank]->send[1], true, work.send_ll != 0,
                          work.send_address + range.begin, range.end - range.begin,
                          ChunkBytes(work.send_chunk), ll_slot);
    }
    if (receives) {
      const Range range = PartOf(work.receive_channels, part, work.receive_bytes);
      copies.emplace_back(&place.channel->peers[work.receive_rank]->receive[1], false,
                          work.receive_ll != 0, work.receive_address + range.begin,
                          range.end - range.begin, ChunkBytes(work.receive_chunk), ll_slot);
    }
  }
  size_t left = copies.size();
  int turn = 0;
  while (left > 0 && !place.progress->aborted()) {
    bool moved = false;
    for (Copy& copy : copies) {
      if (copy.done() || !copy.Advance()) continue;
      moved = true;
      if (copy.done()) --left;
    }
    turn = moved ? 0 : turn + 1;
    if (!moved) Progress::Relax(turn);
  }
}

}  // namespace nccl_host
