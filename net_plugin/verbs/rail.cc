#include "net_plugin/verbs/rail.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/rdma/port.h"

namespace rewire::net {
namespace {

constexpr uint32_t kPsnMask = 0xffffff;
// Flags beside a queue's number in a request's id.
constexpr uint64_t kReceive = uint64_t{1} << 63;
constexpr uint64_t kUnsignalled = uint64_t{1} << 62;
constexpr uint32_t kInline = 64;  // one clear-to-send entry
// The cost of one outstanding write in addition to its bytes.
constexpr uint64_t kWriteBytes = 4096;

uint64_t IdOf(uint32_t queue, uint32_t id) { return uint64_t{queue} << 32 | id; }
uint32_t QueueOf(uint64_t id) {
  return static_cast<uint32_t>((id & ~(kReceive | kUnsignalled)) >> 32);
}

}  // namespace

bool WrongHere(rdma::CompletionStatus status) {
  return status == rdma::CompletionStatus::kLocalLength ||
         status == rdma::CompletionStatus::kLocalProtection ||
         status == rdma::CompletionStatus::kLocalAccess;
}
bool WrongThere(rdma::CompletionStatus status) {
  return status == rdma::CompletionStatus::kRemoteAccess;
}

absl::StatusOr<rdma::GidEntry> Rail::Address(const rdma::PortInfo& port, const RailOptions& options,
                                             const Offer* peer) const {
  rdma::GidWish wish;
  wish.previous = gid_;
  if (peer != nullptr) wish.peer = rdma::GidEntry{0, peer->gid, peer->gid_type, 0};
  std::vector<rdma::GidEntry> table = port.gids;
  if (options.gid_index >= 0) {
    std::erase_if(table, [&](const rdma::GidEntry& entry) {
      return entry.index != static_cast<uint32_t>(options.gid_index);
    });
  }
  const std::optional<rdma::GidEntry> gid = ChooseGid(table, port.link_layer, wish);
  if (gid) return *gid;
  return absl::UnavailableError(absl::StrCat(
      nic_->name(), ": no GID",
      options.gid_index < 0 ? "" : absl::StrCat(" at REWIRE_NET_GID=", options.gid_index),
      peer == nullptr ? " can be used" : " can reach the peer's GID ",
      peer == nullptr ? "" : peer->gid.Text()));
}

absl::StatusOr<Offer> Rail::Prepare(const RailOptions& options, const Offer* peer,
                                    uint64_t random) {
  downs_ = nic_->downs();
  faults_ = nic_->faults();
  REWIRE_ASSIGN_OR_RETURN(const rdma::PortInfo port, nic_->Query());
  if (port.state != rdma::PortState::kActive) {
    return absl::UnavailableError(absl::StrCat(nic_->name(), " has no link"));
  }
  if (peer != nullptr && peer->link_layer != port.link_layer) {
    return absl::FailedPreconditionError(
        absl::StrCat(nic_->name(),
                     ": this port and the peer's port must both be InfiniBand or both "
                     "Ethernet"));
  }
  REWIRE_ASSIGN_OR_RETURN(gid_, Address(port, options, peer));
  const size_t count = peer == nullptr ? options.queue_pairs : peer->queues.size();
  const auto room = static_cast<uint32_t>(count * (kChain * kSends + kReceives));
  absl::StatusOr<std::shared_ptr<rdma::CompletionQueue>> queue =
      nic_->device().CreateCompletionQueue(room);
  if (!queue.ok()) return queue.status();
  Drop();
  completions_ = *std::move(queue);
  const bool adaptive = options.adaptive.value_or(port.link_layer == rdma::LinkLayer::kInfiniBand);
  apart_ = adaptive ? options.apart : SIZE_MAX;
  mtu_ = port.active_mtu;
  speed_mbps_ = nic_->speed_mbps();
  Offer offer;
  offer.link_layer = port.link_layer;
  offer.gid_type = gid_->type;
  offer.gid = gid_->gid;
  offer.lid = port.lid;
  offer.mtu = mtu_;
  offer.speed_mbps = speed_mbps_;
  queues_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    Queue& q = queues_[i];
    rdma::QueuePairOptions wanted;
    wanted.send_completions = wanted.receive_completions = completions_;
    wanted.max_send = kChain * kSends;
    wanted.max_receive = kReceives;
    wanted.max_inline = kInline;
    auto pair = nic_->device().CreateQueuePair(wanted);
    wanted.max_inline = 0;  // some devices do not support inline data
    if (!pair.ok()) pair = nic_->device().CreateQueuePair(wanted);
    if (!pair.ok()) return pair.status();
    q.pair = *std::move(pair);
    q.psn = static_cast<uint32_t>(MixWord(random, i)) & kPsnMask;
    max_inline_ = q.pair->max_inline();
    REWIRE_RETURN_IF_ERROR(
        q.pair->ToInit({nic_->port(),
                        options.pkey_index,
                        {.local_write = true, .remote_write = true, .remote_read = true}}));
    REWIRE_RETURN_IF_ERROR(PostReceives(&q, i, kReceives));
    const absl::StatusOr<rdma::Ece> ece = q.pair->QueryEce();
    offer.queues.push_back({q.pair->number(), q.psn, ece.value_or(rdma::Ece{})});
  }
  return offer;
}

absl::Status Rail::Join(const RailOptions& options, const Offer& peer, Offer* answer) {
  if (peer.queues.size() != queues_.size()) {
    return absl::DataLossError(
        absl::StrCat("join rail on ", nic_->name(), ": queue pairs=", peer.queues.size(),
                     " at the peer: must be ", queues_.size(), " (REWIRE_NET_QPS)"));
  }
  speed_mbps_ = std::clamp(peer.speed_mbps, 1U, nic_->speed_mbps());
  for (size_t i = 0; i < queues_.size(); ++i) {
    rdma::ReceiveAttributes receive;
    receive.mtu = std::min(mtu_, peer.mtu);
    receive.peer_number = peer.queues[i].number;
    receive.first_psn = peer.queues[i].first_psn;
    // On one InfiniBand subnet the peer's LID is enough.
    if (gid_->type != rdma::GidType::kInfiniBand) receive.peer_gid = peer.gid;
    receive.gid_index = static_cast<uint8_t>(gid_->index);
    receive.peer_lid = peer.lid;
    receive.service_level = options.service_level;
    receive.traffic_class = options.traffic_class;
    // With another vendor's device there is no ECE to agree on.
    const rdma::Ece& ece = peer.queues[i].ece;
    const bool agreed = ece.vendor != 0 && queues_[i].pair->SetEce(ece).ok();
    REWIRE_RETURN_IF_ERROR(queues_[i].pair->ToReadyToReceive(receive));
    if (answer != nullptr) {
      answer->queues[i].ece = {};
      // The device may have accepted fewer options than requested, and the peer must use the same.
      if (agreed) answer->queues[i].ece = queues_[i].pair->QueryEce().value_or(rdma::Ece{});
    }
    rdma::SendAttributes send;
    send.first_psn = queues_[i].psn;
    send.timeout = options.timeout;
    send.retries = options.retries;
    REWIRE_RETURN_IF_ERROR(queues_[i].pair->ToReadyToSend(send));
  }
  return absl::OkStatus();
}

void Rail::Fence() {
  fenced_ = true;
  for (Queue& q : queues_) {
    const absl::Status status = q.pair->ToError();
    // A queue pair that cannot enter the error state is stopped by its destruction.
    if (!status.ok()) {
      REWIRE_WARN("net plugin: fence rail on %s: the queue pairs are destroyed: %s",
                  nic_->name().c_str(), std::string(status.message()).c_str());
      return Drop();
    }
  }
}

bool Rail::Drained() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const Queue& q) { return q.receives == 0; });
}

void Rail::Drop() {
  queues_.clear();
  completions_.reset();
  fenced_ = false;
  sends_ = 0;
  bytes_ = 0;
}

Rail Rail::Take() {
  Rail taken(nic_);
  taken.queues_.swap(queues_);
  taken.completions_.swap(completions_);
  Drop();
  return taken;
}

bool Rail::Down() const {
  if (nic_->downs() != downs_) return true;
  return nic_->faults() != faults_ && nic_->Failed(completions_->id());
}

bool Rail::HasRoom() const { return sends_ < queues_.size() * kSends; }

uint64_t Rail::Load(size_t bytes) const {
  return (bytes_ + sends_ * kWriteBytes + bytes + kWriteBytes) * 1000 / speed_mbps_;
}

rdma::PostResult Rail::Write(std::span<const rdma::SendWork> chain, size_t bytes) {
  Queue* best = nullptr;
  for (Queue& q : queues_) {
    if (q.sends == kSends) continue;
    if (best == nullptr ||
        q.bytes + q.sends * kWriteBytes < best->bytes + best->sends * kWriteBytes)
      best = &q;
  }
  if (best == nullptr)
    return {absl::ResourceExhaustedError(absl::StrCat(
                "post to ", nic_->name(), ": every send queue is full (", kSends, " requests)")),
            0};
  return Post(best, chain, bytes);
}

absl::StatusOr<uint32_t> Rail::Probe() {
  const rdma::SendWork nothing;
  for (Queue& q : queues_) REWIRE_RETURN_IF_ERROR(Post(&q, {&nothing, 1}, 0).status);
  return static_cast<uint32_t>(queues_.size());
}

rdma::PostResult Rail::Post(Queue* queue, std::span<const rdma::SendWork> chain, size_t bytes) {
  const auto number = static_cast<uint32_t>(queue - queues_.data());
  std::array<rdma::SendWork, kChain> works;
  std::transform(chain.begin(), chain.end(), works.begin(), [number](rdma::SendWork work) {
    work.id = IdOf(number, static_cast<uint32_t>(work.id)) | (work.signalled ? 0 : kUnsignalled);
    return work;
  });
  rdma::PostResult result = queue->pair->PostSend({works.data(), chain.size()});
  // A partly posted chain is not counted, nor is the completion of its first request.
  if (result.posted < chain.size()) return result;
  queue->sizes[(queue->first + queue->sends) % kSends] = static_cast<uint32_t>(bytes);
  ++queue->sends;
  queue->bytes += bytes;
  ++sends_;
  bytes_ += bytes;
  return result;
}

absl::Status Rail::PostReceives(Queue* queue, uint32_t number, uint32_t count) {
  std::array<rdma::ReceiveWork, kBatch> works;
  works.fill({kReceive | IdOf(number, 0)});
  while (count > 0) {
    const size_t n = std::min<size_t>(count, works.size());
    const rdma::PostResult posted = queue->pair->PostReceive({works.data(), n});
    queue->receives += static_cast<uint32_t>(posted.posted);
    if (!posted.status.ok()) return posted.status;
    count -= static_cast<uint32_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Rail::Poll(std::span<RailEvent> out) {
  const absl::StatusOr<size_t> polled =
      completions_->Poll(std::span(batch_).first(std::min(out.size(), batch_.size())));
  if (!polled.ok() || *polled == 0) return polled;
  for (size_t i = 0; i < *polled; ++i) {
    const rdma::Completion& c = batch_[i];
    Queue& q = queues_[QueueOf(c.id)];
    const bool received = (c.id & kReceive) != 0;
    if (received) {
      --q.receives;
    } else if ((c.id & kUnsignalled) == 0) {
      const uint32_t bytes = q.sizes[q.first];
      q.first = (q.first + 1) % kSends;
      --q.sends;
      q.bytes -= bytes;
      --sends_;
      bytes_ -= bytes;
    }
    RailEvent& event = out[i] = {};
    event.id = static_cast<uint32_t>(c.id);
    event.status = c.status;
    if (c.status != rdma::CompletionStatus::kSuccess) {
      event.kind = RailEvent::Kind::kFailed;
    } else if (received) {
      event.kind = RailEvent::Kind::kArrived;
      event.immediate = c.immediate.value_or(0);
      event.bytes = c.bytes;
      ++q.taken;
    }
  }
  // Receives posted to a queue in error may never complete, so none are posted.
  if (fenced_) return *polled;
  // PostReceives' error is ignored: a failed queue reports its failure itself.
  for (uint32_t i = 0; i < queues_.size(); ++i) {
    Queue& q = queues_[i];
    if (q.taken >= kBatch) (void)PostReceives(&q, i, std::exchange(q.taken, 0));
  }
  return *polled;
}

}  // namespace rewire::net
