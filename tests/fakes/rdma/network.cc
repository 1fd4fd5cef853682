#include "tests/fakes/rdma/network.h"

#include <algorithm>

#include "tests/fakes/rdma/endpoint.h"

namespace rewire::rdma::fake {
namespace {
constexpr uint64_t kHeaderBytes = 66;
}  // namespace

void Opened::Tell(DeviceEvent event) {
  events.push_back(event);
  const uint64_t one = 1;
  // The write cannot fail: the counter does not reach 2^64 events.
  [[maybe_unused]] const ssize_t written = ::write(event_fd.get(), &one, sizeof one);
}

void Node::TellAll(const DeviceEvent& event) {
  for (Opened* one : opened) one->Tell(event);
}

Node& Network::AddNode(Node node) {
  node.number = static_cast<uint32_t>(nodes_.size());
  return *nodes_.emplace_back(std::make_unique<Node>(std::move(node)));
}

Node* Network::Find(std::string_view name) {
  for (const auto& node : nodes_) {
    if (node->info.name == name) return node.get();
  }
  return nullptr;
}

void Network::Run(Duration duration) {
  const Time end = now() + duration;
  while (events_.RunOne(end)) {
  }
}

Node* Network::Resolve(const Path& path) {
  const auto has = [&](Node& node, const Gid& gid) {
    const auto& gids = node.port().gids;
    return std::any_of(gids.begin(), gids.end(), [&](const GidEntry& entry) {
      return entry.gid == gid && entry.type == path.type;
    });
  };
  if (path.from_gid && !has(*nodes_[path.from_node], *path.from_gid)) return nullptr;
  for (const auto& node : nodes_) {
    if (path.to_gid ? has(*node, *path.to_gid) : node->port().lid == path.to_lid) return node.get();
  }
  return nullptr;
}

void Network::Send(const Path& path, Packet packet, Time* last_arrival) {
  Node& from = *nodes_[path.from_node];
  const uint64_t bits = 8 * (packet.payload.size() + kHeaderBytes);
  from.send_free = std::max(now(), from.send_free) +
                   nanoseconds(bits * 1000 / std::max(from.port().speed_mbps, 1U));
  const bool lost = random_.Below(1'000'000) < from.loss_per_million;
  const Duration jitter = random_.Between(Duration{}, options_.jitter);
  Node* to = Resolve(path);
  if (to == nullptr || lost || from.port().state != PortState::kActive) {
    Note(packet.psn);
    return;
  }
  const Time arrival = std::max(from.send_free + from.latency + to->latency + jitter,
                                *last_arrival + nanoseconds(1));
  *last_arrival = arrival;
  At(arrival, [this, to, packet = std::move(packet)]() mutable {
    if (to->held) {
      held_.push_back({to->number, std::move(packet)});
    } else {
      Arrive(*to, packet);
    }
  });
}

void Network::Arrive(Node& to, const Packet& packet) {
  Note(static_cast<uint64_t>(ToNanoseconds(now() - Time{})));
  Note(uint64_t{packet.to_queue_pair} << 32 | static_cast<uint64_t>(packet.kind) << 24 |
       packet.psn);
  if (to.port().state != PortState::kActive) return;
  const auto endpoint = to.endpoints.find(packet.to_queue_pair);
  if (endpoint != to.endpoints.end()) endpoint->second->Take(packet);
}

void Network::Release(Node& node) {
  std::vector<Held> others;
  for (Held& held : std::exchange(held_, {})) {
    if (held.to == node.number) {
      Arrive(node, held.packet);
    } else {
      others.push_back(std::move(held));
    }
  }
  held_.insert(held_.begin(), std::make_move_iterator(others.begin()),
               std::make_move_iterator(others.end()));
}

}  // namespace rewire::rdma::fake
