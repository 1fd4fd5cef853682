#include "tests/fakes/rdma/completion_ring.h"

#include <utility>

#include "tests/fakes/rdma/endpoint.h"

namespace rewire::rdma::fake {

void CompletionRing::Push(Entry entry) {
  if (overrun_) return;
  if (entries_.size() < capacity_) {
    entries_.push_back(std::move(entry));
    return;
  }
  Overrun();
}

void CompletionRing::Overrun() {
  if (std::exchange(overrun_, true)) return;
  opened_->Tell({DeviceEventKind::kCompletionQueueError, 0, id_, "completion queue overrun"});
  for (Endpoint* user : users) {
    opened_->Tell({DeviceEventKind::kQueuePairError, 0, user->number(), "queue pair fatal"});
    user->EnterError();
  }
}

Completion CompletionRing::Pop() {
  const Entry entry = std::move(entries_.front());
  entries_.pop_front();
  if (const auto owner = entry.owner.lock()) {
    owner->FreeSlots(entry.resets, entry.send_slots, entry.receive_slots);
  }
  return entry.completion;
}

void CompletionRing::Forget(uint32_t queue_pair) {
  std::erase_if(entries_,
                [&](const Entry& entry) { return entry.completion.queue_pair == queue_pair; });
}

}  // namespace rewire::rdma::fake
