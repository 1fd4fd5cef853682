// Device memory's way over sockets: a piece of it is copied to or from host memory by the CUDA
// driver, on a thread of the process's own. Program kernels wait for these bytes while the copy
// runs: nothing is allocated on a device or page-locked for it, which would wait for the kernels in
// turn. Of the thread that moves the connection.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "reconfig/base/device_wait.h"

namespace rewire::net {

class Staging {
 public:
  // `run`: where copies are made. patience: for each copy, after which it has failed.
  explicit Staging(std::function<void(std::function<void()>)> run,
                   Duration patience = kDevicePatience);
  // Waits for a copy that is under way, until it fails at the latest.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Whether this process has a CUDA driver.
  [[nodiscard]] static bool Possible();

  // A copy has been begun whose end has not been asked for.
  [[nodiscard]] bool busy() const { return busy_; }
  // Where a piece lies in host memory. Not while it is busy.
  [[nodiscard]] char* Room(size_t bytes);
  // Begins to copy from the device to Room(), and from there to the device. Not while it is busy.
  void Fetch(const void* from, size_t bytes);
  void Store(void* to, size_t bytes);
  // How the copy has ended; nothing: it has not.
  [[nodiscard]] std::optional<absl::Status> Ended();

 private:
  struct Shared;
  void Begin(const void* device, size_t bytes, bool fetch);

  const std::function<void(std::function<void()>)> run_;
  const Duration patience_;
  const std::shared_ptr<Shared> shared_;
  bool busy_ = false;
};

}  // namespace rewire::net
