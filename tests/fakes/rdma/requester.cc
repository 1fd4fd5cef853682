// The sending side of an endpoint. Packets are sent in the order of their numbers, with at most one
// window unacknowledged. After a timeout or a NAK, the sender starts again from the oldest packet.
#include <algorithm>

#include "tests/fakes/rdma/endpoint.h"

namespace rewire::rdma::fake {
namespace {

constexpr uint64_t kWindow = 64;

CompletionKind KindOf(Operation operation) {
  switch (operation) {
    case Operation::kRead:
      return CompletionKind::kRead;
    case Operation::kSend:
      return CompletionKind::kSend;
    default:
      return CompletionKind::kWrite;
  }
}

// Calls visit(address, lkey, bytes) for the pieces of [offset, offset + count) of the segments.
template <typename Visit>
bool ForPieces(std::span<const Segment> segments, uint64_t offset, uint64_t count, Visit visit) {
  for (const Segment& segment : segments) {
    if (offset >= segment.bytes) {
      offset -= segment.bytes;
      continue;
    }
    const uint64_t piece = std::min(count, segment.bytes - offset);
    if (piece > 0 && !visit(segment.address + offset, segment.lkey, piece)) return false;
    count -= piece;
    offset = 0;
  }
  return true;
}

}  // namespace

void Endpoint::Pump() {
  if (transmit_scheduled_ || state_ != QueuePairState::kReadyToSend || next_ == posted_) return;
  transmit_scheduled_ = true;
  const Time at = std::max({network_.now(), node_.send_free, rnr_until_});
  network_.At(at, [weak = weak_from_this(), resets = resets_] {
    const auto self = weak.lock();
    if (self == nullptr || self->resets_ != resets) return;
    self->transmit_scheduled_ = false;
    if (self->state_ == QueuePairState::kReadyToSend) self->TransmitNext();
  });
}

bool Endpoint::Gather(const Send& send, uint64_t offset, uint64_t count, std::string* out) const {
  if (send.inlined) {
    *out = send.inline_bytes.substr(offset, count);
    return true;
  }
  return ForPieces(send.segments, offset, count,
                   [&](uint64_t address, uint32_t lkey, uint64_t bytes) {
                     const char* from =
                         node_.memory.Find(lkey, opened_.domain, address, bytes, Touch::kLocalRead);
                     if (from != nullptr) out->append(from, bytes);
                     return from != nullptr;
                   });
}

Endpoint::Send* Endpoint::SendAt(uint64_t sequence) {
  const auto found = std::find_if(sends_.begin(), sends_.end(),
                                  [&](const Send& send) { return sequence < send.end(); });
  return found == sends_.end() ? nullptr : &*found;
}

void Endpoint::TransmitNext() {
  if (network_.now() < rnr_until_) return Pump();
  if (next_ == posted_ || next_ - oldest_ >= kWindow) return;
  Send& send = *SendAt(next_);
  const uint64_t index = next_ - send.first;
  const uint64_t offset = index * mtu_;
  Packet packet;
  packet.psn = static_cast<uint32_t>(next_ & 0xffffff);
  packet.rkey = send.rkey;
  packet.address = send.remote_address + offset;
  if (send.operation == Operation::kRead) {
    const auto asked = std::count_if(sends_.begin(), sends_.end(), [](const Send& s) {
      return s.operation == Operation::kRead && s.asked;
    });
    if (asked >= attributes_.max_reads && !send.asked) return;  // continues when a READ completes
    send.asked = true;
    packet.kind = PacketKind::kReadRequest;
    packet.length = send.bytes - offset;
    packet.first = packet.last = true;
    next_ = send.end();
  } else {
    const uint64_t count = std::min<uint64_t>(mtu_, send.bytes - offset);
    if (!Gather(send, offset, count, &packet.payload)) {
      // Earlier requests complete first; then this function is called again.
      if (&send == &sends_.front()) Fail(CompletionStatus::kLocalProtection);
      return;
    }
    packet.kind = send.operation == Operation::kSend ? PacketKind::kSend : PacketKind::kWrite;
    packet.length = send.bytes;
    packet.first = index == 0;
    packet.last = index + 1 == send.packets;
    if (packet.last && send.operation == Operation::kWriteWithImmediate) {
      packet.immediate = send.immediate;
    }
    ++next_;
  }
  Transmit(std::move(packet));
  ArmTimer();
  Pump();
}

void Endpoint::ArmTimer() {
  if (attributes_.timeout == 0) return;
  deadline_ = std::max({network_.now(), node_.send_free, rnr_until_}) +
              nanoseconds(uint64_t{4096} << attributes_.timeout);
  AwaitDeadline();
}

void Endpoint::AwaitDeadline() {
  if (timer_scheduled_) return;
  timer_scheduled_ = true;
  network_.At(deadline_, [weak = weak_from_this(), resets = resets_] {
    const auto self = weak.lock();
    if (self == nullptr || self->resets_ != resets) return;
    self->timer_scheduled_ = false;
    if (self->state_ == QueuePairState::kReadyToSend) self->OnTimer();
  });
}

void Endpoint::OnTimer() {
  if (sends_.empty() || next_ == oldest_) return;
  if (network_.now() < deadline_) {
    AwaitDeadline();
    return;
  }
  TryAgain();
}

void Endpoint::TryAgain() {
  if (retries_left_ == 0) return Fail(CompletionStatus::kRetryExceeded);
  --retries_left_;
  GoBack();
}

void Endpoint::GoBack() {
  next_ = oldest_;
  for (Send& send : sends_) send.asked = false;
  ArmTimer();
  Pump();
}

void Endpoint::Acknowledge(uint64_t end) {
  // Only its response data acknowledges a READ.
  while (!sends_.empty() && sends_.front().operation != Operation::kRead && oldest_ < end) {
    oldest_ = std::max(oldest_, std::min(end, sends_.front().end()));
    retries_left_ = attributes_.retries;
    rnr_retries_left_ = attributes_.rnr_retries;
    if (oldest_ == sends_.front().end()) CompleteSend(CompletionStatus::kSuccess);
    if (state_ != QueuePairState::kReadyToSend) return;  // the completion queue was full
    ArmTimer();
  }
  next_ = std::max(next_, oldest_);
}

void Endpoint::TakeAnswer(const Packet& packet) {
  const uint64_t sequence = Unwrapped(packet.psn, oldest_);
  if (sequence > posted_) return;
  if (packet.kind == PacketKind::kAck) {
    Acknowledge(sequence + 1);
  } else if (packet.kind == PacketKind::kNak) {
    TakeNak(packet, sequence);
  } else {
    TakeReadResponse(packet, sequence);
  }
  Pump();
}

void Endpoint::TakeReadResponse(const Packet& packet, uint64_t sequence) {
  Acknowledge(sequence);
  if (sends_.empty() || sends_.front().operation != Operation::kRead || sequence != oldest_) return;
  Send& send = sends_.front();
  std::string_view left = packet.payload;
  const bool placed = ForPieces(send.segments, (sequence - send.first) * mtu_, left.size(),
                                [&](uint64_t address, uint32_t lkey, uint64_t bytes) {
                                  char* to = node_.memory.Find(lkey, opened_.domain, address, bytes,
                                                               Touch::kLocalWrite);
                                  if (to == nullptr) return false;
                                  left.copy(to, bytes);
                                  left.remove_prefix(bytes);
                                  return true;
                                });
  if (!placed) return Fail(CompletionStatus::kLocalProtection);
  ++oldest_;
  next_ = std::max(next_, oldest_);
  retries_left_ = attributes_.retries;
  ArmTimer();
  if (oldest_ == send.end()) CompleteSend(CompletionStatus::kSuccess);
}

void Endpoint::TakeNak(const Packet& packet, uint64_t sequence) {
  Acknowledge(sequence);
  if (state_ != QueuePairState::kReadyToSend || sends_.empty() || sequence != oldest_) return;
  switch (packet.nak) {
    case NakCode::kSequence:
      return TryAgain();
    case NakCode::kReceiverNotReady:
      if (rnr_retries_left_ == 0) return Fail(CompletionStatus::kRnrRetryExceeded);
      if (attributes_.rnr_retries != 7) --rnr_retries_left_;
      rnr_until_ = network_.now() + nanoseconds(packet.length);
      return GoBack();
    case NakCode::kInvalidRequest:
      return Fail(CompletionStatus::kRemoteInvalidRequest);
    case NakCode::kRemoteAccess:
      return Fail(CompletionStatus::kRemoteAccess);
    case NakCode::kRemoteOperation:
      return Fail(CompletionStatus::kRemoteOperation);
  }
}

void Endpoint::CompleteSend(CompletionStatus status) {
  const Send send = std::move(sends_.front());
  sends_.pop_front();
  ++unsignalled_;
  if (!send.signalled && status == CompletionStatus::kSuccess) return;
  CompletionRing::Entry entry;
  entry.completion.id = send.id;
  entry.completion.status = status;
  entry.completion.queue_pair = number_;
  if (status == CompletionStatus::kSuccess) {
    entry.completion.kind = KindOf(send.operation);
    entry.completion.bytes = static_cast<uint32_t>(send.bytes);
  }
  entry.owner = weak_from_this();
  entry.resets = resets_;
  entry.send_slots = std::exchange(unsignalled_, 0);
  send_ring_->Push(std::move(entry));
}

void Endpoint::Fail(CompletionStatus status) {
  CompleteSend(status);
  EnterError();
}

}  // namespace rewire::rdma::fake
