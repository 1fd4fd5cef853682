#include "tests/fakes/rdma/endpoint.h"

#include <algorithm>
#include <cerrno>

namespace rewire::rdma::fake {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

uint64_t Total(std::span<const Segment> segments) {
  uint64_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  return bytes;
}

// Converts an RNR timer code to its wait, in units of 10 us; 0 is the longest.
Duration RnrWait(uint8_t code) {
  constexpr uint32_t kUnits[] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                 16,    24,   32,   48,    64,    96,    128,   192,
                                 256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                 4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return microseconds(10) * kUnits[code % std::size(kUnits)];
}

}  // namespace

Endpoint::Endpoint(Network* network, Node* node, Opened* opened, const EndpointOptions& options,
                   std::shared_ptr<CompletionRing> sends, std::shared_ptr<CompletionRing> receives)
    : network_(*network),
      node_(*node),
      opened_(*opened),
      options_(options),
      number_(network->NextNumber()),
      send_ring_(std::move(sends)),
      receive_ring_(std::move(receives)) {
  node_.endpoints[number_] = this;
  send_ring_->users.insert(this);
  receive_ring_->users.insert(this);
}

Endpoint::~Endpoint() {
  EndArrivals(0);
  node_.endpoints.erase(number_);
  for (CompletionRing* ring : {send_ring_.get(), receive_ring_.get()}) {
    ring->users.erase(this);
    ring->Forget(number_);
  }
}

int Endpoint::ToInit(const InitAttributes& attributes) {
  if (state_ != QueuePairState::kReset) return EINVAL;
  if (attributes.port != 1 || attributes.pkey_index >= node_.port().pkeys.size()) return EINVAL;
  access_ = attributes.access;
  state_ = QueuePairState::kInit;
  return 0;
}

int Endpoint::ToReadyToReceive(const ReceiveAttributes& attributes) {
  if (state_ != QueuePairState::kInit) return EINVAL;
  const uint32_t mtu = attributes.mtu;
  if (mtu < 256 || mtu > node_.port().active_mtu || (mtu & (mtu - 1)) != 0) return EINVAL;
  if (attributes.max_reads > node_.info.max_reads) return EINVAL;
  path_ = Path{node_.number, GidType::kInfiniBand, {}, {}, attributes.peer_lid};
  if (attributes.peer_gid) {
    const auto& gids = node_.port().gids;
    const auto mine = std::find_if(gids.begin(), gids.end(), [&](const GidEntry& entry) {
      return entry.index == attributes.gid_index;
    });
    if (mine == gids.end()) return EINVAL;
    path_.type = mine->type;
    path_.from_gid = mine->gid;
    path_.to_gid = attributes.peer_gid;
  } else if (node_.port().link_layer == LinkLayer::kEthernet) {
    return EINVAL;
  }
  mtu_ = mtu;
  peer_ = attributes.peer_number;
  rnr_wait_ = RnrWait(attributes.min_rnr_timer);
  // The start is far from 0, so that numbers before the first packet do not underflow.
  expected_ = (uint64_t{1} << 32) + (attributes.first_psn & 0xffffff);
  state_ = QueuePairState::kReadyToReceive;
  return 0;
}

int Endpoint::ToReadyToSend(const SendAttributes& attributes) {
  if (state_ != QueuePairState::kReadyToReceive) return EINVAL;
  if (attributes.timeout > 31 || attributes.retries > 7 || attributes.rnr_retries > 7 ||
      attributes.max_reads > node_.info.max_reads) {
    return EINVAL;
  }
  attributes_ = attributes;
  oldest_ = next_ = posted_ = (uint64_t{1} << 32) + (attributes.first_psn & 0xffffff);
  retries_left_ = attributes.retries;
  rnr_retries_left_ = attributes.rnr_retries;
  state_ = QueuePairState::kReadyToSend;
  return 0;
}

int Endpoint::PostSend(const SendWork& work) {
  if (state_ != QueuePairState::kReadyToSend && state_ != QueuePairState::kError) return EINVAL;
  const uint64_t bytes = Total(work.segments);
  if (work.segments.size() > options_.max_segments || bytes > kMostBytes) return EINVAL;
  if (work.inlined && (bytes > options_.max_inline || work.operation == Operation::kRead)) {
    return EINVAL;
  }
  if (send_slots_ == options_.max_send) return ENOMEM;
  ++send_slots_;
  Send send;
  send.id = work.id;
  send.operation = work.operation;
  send.segments.assign(work.segments.begin(), work.segments.end());
  send.remote_address = work.remote_address;
  send.rkey = work.rkey;
  send.immediate = work.immediate;
  send.signalled = work.signalled;
  send.inlined = work.inlined;
  send.bytes = bytes;
  if (work.inlined) {
    for (const Segment& segment : work.segments) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses are numbers here, as in the verbs.
      send.inline_bytes.append(reinterpret_cast<const char*>(segment.address), segment.bytes);
    }
  }
  send.first = posted_;
  send.packets = mtu_ == 0 ? 1 : std::max<uint64_t>((bytes + mtu_ - 1) / mtu_, 1);
  posted_ = send.end();
  sends_.push_back(std::move(send));
  if (state_ == QueuePairState::kError) {
    Flush();
  } else {
    Pump();
  }
  return 0;
}

int Endpoint::PostReceive(const ReceiveWork& work) {
  if (state_ == QueuePairState::kReset) return EINVAL;
  if (work.segments.size() > options_.max_segments) return EINVAL;
  if (receive_slots_ == options_.max_receive) return ENOMEM;
  ++receive_slots_;
  receives_.push_back({work.id, {work.segments.begin(), work.segments.end()}});
  // The receive is too late: some devices flush it, others forget it with its slot.
  if (state_ == QueuePairState::kError) {
    if (network_.random().OneIn(2)) {
      Flush();
    } else {
      receives_.clear();
    }
  }
  return 0;
}

void Endpoint::FreeSlots(uint64_t resets, uint32_t sends, uint32_t receives) {
  if (resets != resets_) return;
  send_slots_ -= sends;
  receive_slots_ -= receives;
}

void Endpoint::EndArrivals(uint32_t lkey) {
  landing_.End(messages_, lkey, [this] { return network_.random().OneIn(2); });
}

void Endpoint::EndRegion(uint32_t lkey) { EndArrivals(lkey); }

void Endpoint::EnterError() {
  if (state_ == QueuePairState::kError || state_ == QueuePairState::kReset) return;
  state_ = QueuePairState::kError;
  EndArrivals(0);
  Flush();
}

void Endpoint::Flush() {
  while (!sends_.empty()) CompleteSend(CompletionStatus::kFlushed);
  while (!receives_.empty()) {
    CompleteReceive(CompletionStatus::kFlushed, CompletionKind::kReceive, 0, {});
  }
}

void Endpoint::Reset() {
  EndArrivals(0);
  ++resets_;
  state_ = QueuePairState::kReset;
  transmit_scheduled_ = timer_scheduled_ = nak_sent_ = inside_ = false;
  sends_.clear();
  receives_.clear();
  send_slots_ = receive_slots_ = unsignalled_ = 0;
  rnr_until_ = deadline_ = Time{};
  // Some devices remove the entries from their completion queues, others do not.
  if (network_.random().OneIn(2)) {
    send_ring_->Forget(number_);
    receive_ring_->Forget(number_);
  }
}

void Endpoint::Transmit(Packet packet) {
  packet.from_queue_pair = number_;
  packet.to_queue_pair = peer_;
  packet.from_type = path_.type;
  packet.from_gid = path_.from_gid;
  packet.ece_options = ece.options;
  network_.Send(path_, std::move(packet), &last_arrival_);
}

void Endpoint::Take(const Packet& packet) {
  if (packet.from_queue_pair != peer_ || packet.from_type != path_.type ||
      packet.from_gid != path_.to_gid || packet.ece_options != ece.options) {
    return;
  }
  if (state_ != QueuePairState::kReadyToReceive && state_ != QueuePairState::kReadyToSend) return;
  switch (packet.kind) {
    case PacketKind::kWrite:
    case PacketKind::kSend:
    case PacketKind::kReadRequest:
      TakeRequest(packet);
      break;
    case PacketKind::kReadResponse:
    case PacketKind::kAck:
    case PacketKind::kNak:
      if (state_ == QueuePairState::kReadyToSend) TakeAnswer(packet);
      break;
  }
}

}  // namespace rewire::rdma::fake
