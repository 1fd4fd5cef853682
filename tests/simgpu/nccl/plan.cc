#include "tests/simgpu/nccl/plan.h"

#include <algorithm>
#include <cstring>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {

void Plan::Add(const PeerTask& task) {
  if (task.peer == rank_) {
    (task.sending ? self_sends_ : self_recvs_).push_back(task);
  } else if (task.bytes > 0) {
    flows_[{task.sending, task.peer}].tasks.push_back(task);
  }
}

ncclResult_t Plan::PairSelf() {
  bool paired = self_sends_.size() == self_recvs_.size();
  for (size_t i = 0; paired && i < self_sends_.size(); ++i) {
    paired = self_sends_[i].bytes == self_recvs_[i].bytes;
  }
  if (paired) return ncclSuccess;
  return Fail(ncclInvalidUsage, "rank %d: Send to and Recv from itself must be paired in one group",
              rank_);
}

void Plan::RunLocal() {
  for (size_t i = 0; i < self_sends_.size(); ++i) {
    if (self_sends_[i].bytes == 0 || self_sends_[i].data == self_recvs_[i].data) continue;
    std::memmove(self_recvs_[i].data, self_sends_[i].data, self_sends_[i].bytes);
  }
  if (nranks_ > 1) return;
  for (const CollectiveTask& task : collectives_) RunAlone(task);
}

bool Plan::NeedsNetwork() const {
  return nranks_ > 1 && (!collectives_.empty() || !flows_.empty());
}

void Plan::Begin(Connections* connections) {
  connections_ = connections;
  for (auto& [key, flow] : flows_) {
    const auto& [sending, peer] = key;
    flow.connection = (sending ? connections->peer_send[peer] : connections->peer_recv[peer]).get();
  }
}

ncclResult_t Plan::AdvanceSend(Flow* flow, bool* moved) {
  Connection* c = flow->connection;
  SIMNCCL_TRY(c->Progress(moved));
  while (!flow->tasks.empty() && c->HasFreeSlot()) {
    PeerTask& task = flow->tasks.front();
    const size_t bytes = std::min(task.bytes, c->slot_bytes());
    std::memcpy(c->NextSlot(), task.data, bytes);
    c->Queue(bytes);
    task.data += bytes;
    task.bytes -= bytes;
    if (task.bytes == 0) flow->tasks.pop_front();
    SIMNCCL_TRY(c->Progress(moved));
    *moved = true;
  }
  return ncclSuccess;
}

ncclResult_t Plan::AdvanceRecv(Flow* flow, bool* moved) {
  Connection* c = flow->connection;
  for (bool again = true; again;) {
    again = false;
    while (!flow->tasks.empty() && c->HasFreeSlot()) {
      PeerTask& task = flow->tasks.front();
      const size_t bytes = std::min(task.bytes, c->slot_bytes());
      c->Queue(bytes);
      flow->expected.emplace_back(task.data, bytes);
      task.data += bytes;
      task.bytes -= bytes;
      if (task.bytes == 0) flow->tasks.pop_front();
    }
    SIMNCCL_TRY(c->Progress(moved));
    while (c->Arrived()) {
      const auto& [data, bytes] = flow->expected.front();
      std::memcpy(data, c->Front(), bytes);
      flow->expected.pop_front();
      c->Pop();
      *moved = true;
      again = true;
    }
  }
  return ncclSuccess;
}

ncclResult_t Plan::Advance(bool* moved, bool* done) {
  *done = true;
  while (ring_.has_value() || !collectives_.empty()) {
    if (!ring_.has_value()) {
      ring_.emplace(collectives_.front(), rank_, nranks_, connections_->ring_next.get(),
                    connections_->ring_previous.get());
      collectives_.pop_front();
    }
    SIMNCCL_TRY(ring_->Advance(moved));
    if (!ring_->done()) {
      *done = false;
      break;
    }
    ring_.reset();
  }
  for (auto& [key, flow] : flows_) {
    SIMNCCL_TRY(key.first ? AdvanceSend(&flow, moved) : AdvanceRecv(&flow, moved));
    if (!flow.tasks.empty() || !flow.expected.empty() || !flow.connection->Idle()) *done = false;
  }
  return ncclSuccess;
}

void Plan::AppendWaiting(std::vector<Connection*>* waiting) {
  const auto append = [&](Connection* c) {
    if (c != nullptr && c->Waiting()) waiting->push_back(c);
  };
  if (ring_.has_value()) {
    append(connections_->ring_next.get());
    append(connections_->ring_previous.get());
  }
  for (auto& [key, flow] : flows_) append(flow.connection);
}

}  // namespace simnccl
