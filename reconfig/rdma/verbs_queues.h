// Implements CompletionQueue and QueuePair with the verbs library. VerbsDevice creates the objects.
// Thread-compatible; queue_pair.h has the thread rules.
#pragma once

#include <memory>
#include <vector>

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

class VerbsQueuePair : public QueuePair {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<QueuePair>> Create(
      std::shared_ptr<VerbsDevice> device, ibv_pd* pd, const QueuePairOptions& options);
  ~VerbsQueuePair() override;

  [[nodiscard]] uint32_t number() const override { return qp_->qp_num; }
  [[nodiscard]] uint32_t max_inline() const override { return max_inline_; }
  absl::StatusOr<QueuePairState> QueryState() override;
  absl::Status ToInit(const InitAttributes& attributes) override;
  absl::Status ToReadyToReceive(const ReceiveAttributes& attributes) override;
  absl::Status ToReadyToSend(const SendAttributes& attributes) override;
  absl::Status ToError() override;
  absl::Status ToReset() override;
  absl::StatusOr<Ece> QueryEce() override;
  absl::Status SetEce(const Ece& ece) override;
  PostResult PostSend(std::span<const SendWork> chain) override;
  PostResult PostReceive(std::span<const ReceiveWork> chain) override;

 private:
  VerbsQueuePair(std::shared_ptr<VerbsDevice> device, const QueuePairOptions& options, ibv_qp* qp,
                 uint32_t max_inline);
  // to: name of the new state, for the error.
  [[nodiscard]] absl::Status Modify(ibv_qp_attr* attributes, int mask, std::string_view to);
  // Writes the segments to slot `i` of sges_; returns null if there are too many segments.
  ibv_sge* Segments(size_t i, std::span<const Segment> segments);

  const std::shared_ptr<VerbsDevice> device_;
  const std::shared_ptr<CompletionQueue> send_completions_;
  const std::shared_ptr<CompletionQueue> receive_completions_;
  ibv_qp* const qp_;
  const uint32_t max_inline_;
  const uint32_t max_segments_;
  uint8_t port_ = 1;  // set by ToInit()
  // The arguments of one call to the library, kept so that posting allocates nothing.
  std::vector<ibv_send_wr> sends_;
  std::vector<ibv_recv_wr> receives_;
  std::vector<ibv_sge> sges_;
};

}  // namespace rewire::rdma
