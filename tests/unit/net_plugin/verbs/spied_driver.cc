#include "tests/unit/net_plugin/verbs/spied_driver.h"

#include <string>
#include <utility>

namespace rewire::net {
namespace {

class SpiedQueuePair final : public rdma::QueuePair {
 public:
  SpiedQueuePair(std::unique_ptr<rdma::QueuePair> pair, std::shared_ptr<Spied> spied,
                 std::string device)
      : pair_(std::move(pair)), spied_(std::move(spied)), device_(std::move(device)) {
    spied_->queue_pairs[pair_->number()] = pair_.get();
  }
  ~SpiedQueuePair() override {
    spied_->queue_pairs.erase(pair_->number());
    if (spied_->unfenced) spied_->dropped.push_back(std::move(pair_));
  }
  uint32_t number() const override { return pair_->number(); }
  uint32_t max_inline() const override { return pair_->max_inline(); }
  absl::StatusOr<rdma::QueuePairState> QueryState() override { return pair_->QueryState(); }
  absl::Status ToInit(const rdma::InitAttributes& a) override { return pair_->ToInit(a); }
  absl::Status ToReadyToReceive(const rdma::ReceiveAttributes& a) override {
    return pair_->ToReadyToReceive(a);
  }
  absl::Status ToReadyToSend(const rdma::SendAttributes& a) override {
    return pair_->ToReadyToSend(a);
  }
  absl::Status ToError() override {
    ++spied_->errors;
    return spied_->unfenced ? absl::OkStatus() : pair_->ToError();
  }
  absl::Status ToReset() override { return pair_->ToReset(); }
  absl::StatusOr<rdma::Ece> QueryEce() override { return pair_->QueryEce(); }
  absl::Status SetEce(const rdma::Ece& ece) override { return pair_->SetEce(ece); }
  rdma::PostResult PostSend(std::span<const rdma::SendWork> chain) override {
    if (spied_->cut && chain.size() > 1) {
      const size_t posted = pair_->PostSend(chain.first(1)).posted;
      spied_->cut();
      return {absl::ResourceExhaustedError("cut"), posted};
    }
    for (const rdma::SendWork& work : chain) {
      size_t bytes = 0;
      for (const rdma::Segment& segment : work.segments) bytes += segment.bytes;
      spied_->bytes[device_] += bytes;
      spied_->posted[device_].push_back({work.operation, bytes, work.signalled});
    }
    return pair_->PostSend(chain);
  }
  rdma::PostResult PostReceive(std::span<const rdma::ReceiveWork> chain) override {
    return pair_->PostReceive(chain);
  }

 private:
  std::unique_ptr<rdma::QueuePair> pair_;
  const std::shared_ptr<Spied> spied_;
  const std::string device_;
};

class SpiedDevice final : public rdma::Device {
 public:
  SpiedDevice(std::shared_ptr<rdma::Device> device, std::shared_ptr<Spied> spied)
      : device_(std::move(device)), spied_(std::move(spied)) {}
  const rdma::DeviceInfo& info() const override { return device_->info(); }
  absl::StatusOr<rdma::PortInfo> QueryPort(uint8_t port) override {
    return device_->QueryPort(port);
  }
  absl::StatusOr<std::shared_ptr<rdma::CompletionQueue>> CreateCompletionQueue(
      uint32_t entries) override {
    return device_->CreateCompletionQueue(spied_->completions != 0 ? spied_->completions : entries);
  }
  absl::StatusOr<std::unique_ptr<rdma::QueuePair>> CreateQueuePair(
      const rdma::QueuePairOptions& options) override {
    auto made = device_->CreateQueuePair(options);
    if (!made.ok()) return made.status();
    return std::make_unique<SpiedQueuePair>(*std::move(made), spied_, info().name);
  }
  absl::StatusOr<std::unique_ptr<rdma::MemoryRegion>> Register(void* address, size_t bytes,
                                                               rdma::Access access) override {
    return device_->Register(address, bytes, access);
  }
  absl::StatusOr<std::unique_ptr<rdma::MemoryRegion>> RegisterDmabuf(int fd, uint64_t offset,
                                                                     size_t bytes, uint64_t address,
                                                                     rdma::Access access) override {
    return device_->RegisterDmabuf(fd, offset, bytes, address, access);
  }
  int event_fd() const override { return device_->event_fd(); }
  absl::StatusOr<std::optional<rdma::DeviceEvent>> ReadEvent() override {
    return device_->ReadEvent();
  }

 private:
  const std::shared_ptr<rdma::Device> device_;
  const std::shared_ptr<Spied> spied_;
};

class SpiedDriver final : public rdma::Driver {
 public:
  SpiedDriver(std::unique_ptr<rdma::Driver> driver, std::shared_ptr<Spied> spied)
      : driver_(std::move(driver)), spied_(std::move(spied)) {}
  absl::StatusOr<std::vector<rdma::DeviceInfo>> Devices() override { return driver_->Devices(); }
  absl::StatusOr<std::shared_ptr<rdma::Device>> Open(std::string_view name) override {
    auto opened = driver_->Open(name);
    if (!opened.ok()) return opened.status();
    return std::make_shared<SpiedDevice>(*std::move(opened), spied_);
  }

 private:
  const std::unique_ptr<rdma::Driver> driver_;
  const std::shared_ptr<Spied> spied_;
};

}  // namespace

std::unique_ptr<rdma::Driver> Spy(std::unique_ptr<rdma::Driver> driver,
                                  std::shared_ptr<Spied> spied) {
  return std::make_unique<SpiedDriver>(std::move(driver), std::move(spied));
}

}  // namespace rewire::net
