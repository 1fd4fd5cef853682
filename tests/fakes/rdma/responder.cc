// The receiving side of an endpoint: takes requests in the order of their packet numbers, checks
// each as a device does, executes it and answers.
#include <algorithm>

#include "tests/fakes/rdma/endpoint.h"

namespace rewire::rdma::fake {
namespace {
constexpr uint64_t kAckEvery = 16;
}  // namespace

void Endpoint::TakeRequest(const Packet& packet) {
  const uint64_t sequence = Unwrapped(packet.psn, expected_);
  if (sequence > expected_) {
    if (!std::exchange(nak_sent_, true)) SendNak(NakCode::kSequence);
    return;
  }
  nak_sent_ = false;
  Packet ack;
  if (sequence < expected_) {
    // The request was executed before, but the answer was lost. A READ is executed again.
    if (packet.kind == PacketKind::kReadRequest) {
      if (!RespondRead(packet)) Refuse(NakCode::kRemoteAccess);
      return;
    }
    ack.psn = static_cast<uint32_t>((expected_ - 1) & 0xffffff);
    return Transmit(std::move(ack));
  }
  if (packet.first == inside_) return Refuse(NakCode::kInvalidRequest);
  if (packet.kind == PacketKind::kReadRequest) {
    if (TakeRead(packet)) expected_ += std::max<uint64_t>((packet.length + mtu_ - 1) / mtu_, 1);
    return;
  }
  if (!(packet.kind == PacketKind::kWrite ? TakeWrite(packet) : TakeSend(packet))) return;
  if (state_ == QueuePairState::kError) return;  // the completion queue was full
  ++expected_;
  inside_ = !packet.last;
  arrived_ = packet.last ? 0 : arrived_ + packet.payload.size();
  if (packet.last) ++messages_;
  if (packet.last || sequence % kAckEvery == 0) {
    ack.psn = packet.psn;
    Transmit(std::move(ack));
  }
}

bool Endpoint::TakeWrite(const Packet& packet) {
  if (!access_.remote_write) {
    Refuse(NakCode::kInvalidRequest);
    return false;
  }
  // Checks the whole message at its first packet, and each later packet, because memory may be
  // deregistered in between.
  const uint64_t count = packet.first ? packet.length : packet.payload.size();
  char* to = nullptr;
  if (count > 0) {
    to = node_.memory.Find(packet.rkey, opened_.domain, packet.address, count, Touch::kRemoteWrite);
    if (to == nullptr) {
      Refuse(NakCode::kRemoteAccess);
      return false;
    }
  }
  if (packet.immediate && receives_.empty()) {
    SendNak(NakCode::kReceiverNotReady);
    return false;
  }
  if (to != nullptr) Land(to, packet.payload, MemoryTable::LocalKey(packet.rkey));
  if (packet.immediate) {
    CompleteReceive(CompletionStatus::kSuccess, CompletionKind::kReceiveImmediate, packet.length,
                    packet.immediate);
  }
  return true;
}

bool Endpoint::TakeSend(const Packet& packet) {
  if (receives_.empty()) {
    SendNak(NakCode::kReceiverNotReady);
    return false;
  }
  uint64_t offset = arrived_;
  std::string_view left = packet.payload;
  for (const Segment& segment : receives_.front().segments) {
    if (offset >= segment.bytes) {
      offset -= segment.bytes;
      continue;
    }
    const uint64_t count = std::min<uint64_t>(left.size(), segment.bytes - offset);
    if (count == 0) break;
    char* to = node_.memory.Find(segment.lkey, opened_.domain, segment.address + offset, count,
                                 Touch::kLocalWrite);
    if (to == nullptr) {
      CompleteReceive(CompletionStatus::kLocalProtection, CompletionKind::kReceive, 0, {});
      Refuse(NakCode::kRemoteOperation);
      return false;
    }
    Land(to, left.substr(0, count), segment.lkey);
    left.remove_prefix(count);
    offset = 0;
  }
  if (!left.empty()) {
    CompleteReceive(CompletionStatus::kLocalLength, CompletionKind::kReceive, 0, {});
    Refuse(NakCode::kInvalidRequest);
    return false;
  }
  if (packet.last) {
    CompleteReceive(CompletionStatus::kSuccess, CompletionKind::kReceive, packet.length, {});
  }
  return true;
}

bool Endpoint::TakeRead(const Packet& packet) {
  if (!access_.remote_read) {
    Refuse(NakCode::kInvalidRequest);
    return false;
  }
  if (RespondRead(packet)) return true;
  Refuse(NakCode::kRemoteAccess);
  return false;
}

bool Endpoint::RespondRead(const Packet& packet) {
  const char* from = nullptr;
  if (packet.length > 0) {
    from = node_.memory.Find(packet.rkey, opened_.domain, packet.address, packet.length,
                             Touch::kRemoteRead);
    if (from == nullptr) return false;
  }
  landing_.LandAll();
  uint64_t offset = 0;
  Packet response;
  response.kind = PacketKind::kReadResponse;
  do {
    const uint64_t count = std::min<uint64_t>(mtu_, packet.length - offset);
    response.psn = (packet.psn + static_cast<uint32_t>(offset / mtu_)) & 0xffffff;
    response.payload.assign(from != nullptr ? from + offset : "", count);
    offset += count;
    Transmit(response);
  } while (offset < packet.length);
  return true;
}

void Endpoint::Land(char* to, std::string_view bytes, uint32_t lkey) {
  const auto [begin, end] =
      landing_.Add(to, bytes, lkey, messages_, network_.options().landing_unit,
                   [this] { return network_.random().Next(); });
  for (uint64_t ticket = begin; ticket < end; ++ticket) {
    const Time at =
        network_.now() + network_.random().Between(Duration{}, network_.options().landing);
    network_.At(at, [weak = weak_from_this(), ticket] {
      if (const auto self = weak.lock()) self->landing_.Land(ticket);
    });
  }
}

void Endpoint::CompleteReceive(CompletionStatus status, CompletionKind kind, uint64_t bytes,
                               std::optional<uint32_t> immediate) {
  if (status == CompletionStatus::kSuccess) landing_.LandAll();
  CompletionRing::Entry entry;
  entry.completion.id = receives_.front().id;
  entry.completion.status = status;
  entry.completion.queue_pair = number_;
  entry.completion.kind = kind;
  entry.completion.bytes = static_cast<uint32_t>(bytes);
  entry.completion.immediate = immediate;
  entry.owner = weak_from_this();
  entry.resets = resets_;
  entry.receive_slots = 1;
  receives_.pop_front();
  receive_ring_->Push(std::move(entry));
}

void Endpoint::SendNak(NakCode code) {
  Packet nak;
  nak.kind = PacketKind::kNak;
  nak.nak = code;
  nak.psn = static_cast<uint32_t>(expected_ & 0xffffff);
  if (code == NakCode::kReceiverNotReady) {
    nak.length = ToNanoseconds(rnr_wait_);
    // Later packets are dropped silently: the requester retries from this packet anyway.
    nak_sent_ = true;
  }
  Transmit(std::move(nak));
}

void Endpoint::Refuse(NakCode code) {
  SendNak(code);
  opened_.Tell({DeviceEventKind::kQueuePairError, 0, number_,
                code == NakCode::kRemoteAccess ? "local access violation" : "invalid request"});
  EnterError();
}

}  // namespace rewire::rdma::fake
