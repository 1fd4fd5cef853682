// One NCCL communicator and the collectives that the trainer uses, on the device's stream. Owned by
// the training thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "bench/trainer/device.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::trainer {

class Communicator {
 public:
  static absl::StatusOr<ncclUniqueId> MintId();
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const Device& device,
                                                              const ncclUniqueId& id, int slots,
                                                              int slot);
  // Destroys the communicator; aborts it if an error was seen.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  absl::Status AllReduce(CUdeviceptr data, size_t count, ncclDataType_t type);
  // Stores chunk number `slot` of the sum of `data` in `result`.
  absl::Status ReduceScatter(CUdeviceptr data, CUdeviceptr result, size_t chunk,
                             ncclDataType_t type);
  // In place: this slot's part lies at its chunk of data.
  absl::Status AllGather(CUdeviceptr data, size_t chunk, size_t element_bytes, int slot,
                         ncclDataType_t type);
  absl::Status GroupStart();
  absl::Status GroupEnd();
  // Waits for the stream. Returns the communicator's error if that error ended the wait.
  absl::Status Wait();

  // After a recovery the handle is valid again.
  void ForgetError() { failed_ = false; }

 private:
  explicit Communicator(const Device& device) : device_(device) {}
  absl::Status Check(const char* call, ncclResult_t result);

  const Device& device_;
  ncclComm_t comm_ = nullptr;
  bool failed_ = false;
};

}  // namespace rewire::trainer
