// Completion queues and queue pairs that FakeDevice returns. Made by the fabric; thread-safe.
#pragma once

#include <memory>

#include "tests/fakes/rdma/endpoint.h"
#include "tests/fakes/rdma/fake_driver.h"

namespace rewire::rdma::fake {

class FakeCompletionQueue : public CompletionQueue {
 public:
  FakeCompletionQueue(std::shared_ptr<FakeDevice> device, std::shared_ptr<CompletionRing> ring)
      : device_(std::move(device)), ring_(std::move(ring)) {}
  [[nodiscard]] uint32_t id() const override { return ring_->id(); }
  absl::StatusOr<size_t> Poll(std::span<Completion> out) override;

  [[nodiscard]] const FakeDevice* device() const { return device_.get(); }
  [[nodiscard]] const std::shared_ptr<CompletionRing>& ring() const { return ring_; }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const std::shared_ptr<CompletionRing> ring_;
};

class FakeQueuePair : public QueuePair {
 public:
  FakeQueuePair(std::shared_ptr<FakeDevice> device, const QueuePairOptions& options,
                std::shared_ptr<Endpoint> endpoint)
      : device_(std::move(device)),
        send_completions_(options.send_completions),
        receive_completions_(options.receive_completions),
        endpoint_(std::move(endpoint)) {}
  ~FakeQueuePair() override;

  [[nodiscard]] uint32_t number() const override { return endpoint_->number(); }
  [[nodiscard]] uint32_t max_inline() const override { return endpoint_->options().max_inline; }
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
  [[nodiscard]] absl::Status Result(std::string_view call, int error) const;

  const std::shared_ptr<FakeDevice> device_;
  const std::shared_ptr<CompletionQueue> send_completions_;
  const std::shared_ptr<CompletionQueue> receive_completions_;
  std::shared_ptr<Endpoint> endpoint_;
};

}  // namespace rewire::rdma::fake
