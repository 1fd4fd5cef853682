#include "tests/fakes/rdma/fake_queues.h"

#include <cerrno>

namespace rewire::rdma::fake {

absl::StatusOr<size_t> FakeCompletionQueue::Poll(std::span<Completion> out) {
  MutexLock lock(&device_->core().mutex);
  Network& network = device_->core().network;
  network.Run(network.options().poll_step);
  size_t polled = 0;
  while (polled < out.size() && !ring_->empty()) out[polled++] = ring_->Pop();
  if (polled == 0 && ring_->overrun()) return device_->Error("ibv_poll_cq", EIO);
  return polled;
}

FakeQueuePair::~FakeQueuePair() {
  MutexLock lock(&device_->core().mutex);
  endpoint_.reset();
}

absl::Status FakeQueuePair::Result(std::string_view call, int error) const {
  return error == 0 ? absl::OkStatus() : device_->Error(call, error);
}

absl::StatusOr<QueuePairState> FakeQueuePair::QueryState() {
  MutexLock lock(&device_->core().mutex);
  return endpoint_->state();
}

absl::Status FakeQueuePair::ToInit(const InitAttributes& attributes) {
  MutexLock lock(&device_->core().mutex);
  return Result("ibv_modify_qp to INIT", endpoint_->ToInit(attributes));
}

absl::Status FakeQueuePair::ToReadyToReceive(const ReceiveAttributes& attributes) {
  MutexLock lock(&device_->core().mutex);
  return Result("ibv_modify_qp to RTR", endpoint_->ToReadyToReceive(attributes));
}

absl::Status FakeQueuePair::ToReadyToSend(const SendAttributes& attributes) {
  MutexLock lock(&device_->core().mutex);
  return Result("ibv_modify_qp to RTS", endpoint_->ToReadyToSend(attributes));
}

absl::Status FakeQueuePair::ToError() {
  MutexLock lock(&device_->core().mutex);
  if (endpoint_->state() == QueuePairState::kReset) {
    return device_->Error("ibv_modify_qp to ERR", EINVAL);
  }
  endpoint_->EnterError();
  return absl::OkStatus();
}

absl::Status FakeQueuePair::ToReset() {
  MutexLock lock(&device_->core().mutex);
  endpoint_->Reset();
  return absl::OkStatus();
}

absl::StatusOr<Ece> FakeQueuePair::QueryEce() {
  MutexLock lock(&device_->core().mutex);
  if (endpoint_->ece.vendor == 0) return device_->Error("ibv_query_ece", EOPNOTSUPP);
  return endpoint_->ece;
}

absl::Status FakeQueuePair::SetEce(const Ece& ece) {
  MutexLock lock(&device_->core().mutex);
  if (endpoint_->ece.vendor == 0) return device_->Error("ibv_set_ece", EOPNOTSUPP);
  if (endpoint_->state() > QueuePairState::kInit || ece.vendor != endpoint_->ece.vendor) {
    return device_->Error("ibv_set_ece", EINVAL);
  }
  endpoint_->ece.options &= ece.options;
  return absl::OkStatus();
}

PostResult FakeQueuePair::PostSend(std::span<const SendWork> chain) {
  MutexLock lock(&device_->core().mutex);
  for (size_t i = 0; i < chain.size(); ++i) {
    if (const int error = endpoint_->PostSend(chain[i]); error != 0) {
      return {device_->Error("ibv_post_send", error), i};
    }
  }
  return {absl::OkStatus(), chain.size()};
}

PostResult FakeQueuePair::PostReceive(std::span<const ReceiveWork> chain) {
  MutexLock lock(&device_->core().mutex);
  for (size_t i = 0; i < chain.size(); ++i) {
    if (const int error = endpoint_->PostReceive(chain[i]); error != 0) {
      return {device_->Error("ibv_post_recv", error), i};
    }
  }
  return {absl::OkStatus(), chain.size()};
}

}  // namespace rewire::rdma::fake
