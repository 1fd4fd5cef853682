// A completion queue of the fake. Only the fabric uses it, under the fabric's lock.
#pragma once

#include <deque>
#include <memory>
#include <set>

#include "reconfig/rdma/queue_pair.h"
#include "tests/fakes/rdma/network.h"

namespace rewire::rdma::fake {

class CompletionRing {
 public:
  struct Entry {
    Completion completion;
    std::weak_ptr<Endpoint> owner;
    uint64_t resets = 0;  // resets_ of its owner at that time
    // Polling this entry frees these slots of its owner's queues.
    uint32_t send_slots = 0;
    uint32_t receive_slots = 0;
  };

  CompletionRing(uint32_t id, uint32_t capacity, Opened* opened)
      : id_(id), capacity_(capacity), opened_(opened) {}

  [[nodiscard]] uint32_t id() const { return id_; }
  [[nodiscard]] bool overrun() const { return overrun_; }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // The endpoints whose completions go to this ring.
  std::set<Endpoint*> users;

  void Push(Entry entry);
  // Puts the ring in error for good, with every endpoint that uses the ring.
  void Overrun();
  [[nodiscard]] Completion Pop();
  void Forget(uint32_t queue_pair);

 private:
  const uint32_t id_;
  const uint32_t capacity_;
  Opened* const opened_;
  std::deque<Entry> entries_;
  bool overrun_ = false;
};

}  // namespace rewire::rdma::fake
