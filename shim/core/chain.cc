#include "shim/core/chain.h"

#include <algorithm>

namespace rewire::shim {

void Chain::Arm() {
  const uint64_t stop_at = StopAt();
  comm->stop_at.store(stop_at, std::memory_order_release);
  changed.NotifyAll();
}

uint64_t Chain::StopAt() const {
  if (not_entered || fresh || wait_first != nullptr) return 0;
  uint64_t stop_at = kNoCut;
  if (pledged) stop_at = pledged->warm;
  if (!pending.empty()) stop_at = std::min(stop_at, pending.front()->NextIndex());
  return stop_at;
}

void Chain::TakePending(std::vector<std::unique_ptr<Link>>* links) {
  for (std::unique_ptr<Link>& link : pending) links->push_back(std::move(link));
  pending.clear();
}

elastic::Position Chain::Describe() const {
  elastic::Position position;
  position.communicator = id;
  position.open = current != nullptr;
  if (current != nullptr) {
    position.in_use = current->epoch;
    position.host_waits = current->host_waits;
  }
  for (const std::unique_ptr<Link>& link : pending) {
    position.pending.push_back({link->epoch, link->cut.warm, link->cut.cut});
  }
  position.point_to_point = CarriesPointToPoint(*comm);
  return position;
}

bool CarriesPointToPoint(const VirtualCommunicator& comm) {
  for (const Collective function : {Collective::kSend, Collective::kRecv}) {
    for (const auto& sizes : comm.seen[static_cast<unsigned>(function)]) {
      if (sizes.load(std::memory_order_relaxed) != 0) return true;
    }
  }
  return false;
}

}  // namespace rewire::shim
