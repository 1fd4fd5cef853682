// A completion queue of the verbs library, for the verbs driver. Threads: see CompletionQueue.
#pragma once

#include <memory>

#include "reconfig/rdma/verbs_device.h"

namespace rewire::rdma {

class VerbsCompletionQueue : public CompletionQueue {
 public:
  VerbsCompletionQueue(std::shared_ptr<VerbsDevice> device, ibv_cq* cq, uint32_t id)
      : device_(std::move(device)), cq_(cq), id_(id) {}
  ~VerbsCompletionQueue() override;

  [[nodiscard]] uint32_t id() const override { return id_; }
  absl::StatusOr<size_t> Poll(std::span<Completion> out) override;
  [[nodiscard]] ibv_cq* cq() const { return cq_; }

 private:
  const std::shared_ptr<VerbsDevice> device_;
  ibv_cq* const cq_;
  const uint32_t id_;
};

}  // namespace rewire::rdma
