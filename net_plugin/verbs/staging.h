// Carries device memory over sockets: the CUDA driver copies each piece to or from host memory on a
// thread of the process's own. Kernels of the program may wait for these bytes, so the copy
// allocates no device memory and page-locks nothing: both would wait for the kernels in turn.
// Thread-compatible: owned by the thread that polls the connection.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::net {

class Staging {
 public:
  // `run`: executes the copies. patience: the timeout of each copy.
  explicit Staging(std::function<void(std::function<void()>)> run,
                   Duration patience = kDevicePatience);
  // Waits for a copy in progress until the copy ends or times out.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // True if this process has a CUDA driver.
  [[nodiscard]] static bool Possible();

  // True from the start of a copy until Ended() has returned its result.
  [[nodiscard]] bool busy() const { return busy_; }
  // Returns host memory for a piece. Call only while busy() is false.
  [[nodiscard]] char* Room(size_t bytes);
  // Fetch() copies from the device to Room(), and Store() from Room() to the device. Both return at
  // once. Call only while busy() is false.
  void Fetch(const void* from, size_t bytes);
  void Store(void* to, size_t bytes);
  // Returns the result of the copy, or nothing while the copy is running. After a copy that does
  // not end in time, busy() stays true: CUDA copies to pageable memory inside the call, which
  // cannot be ended.
  [[nodiscard]] std::optional<absl::Status> Ended();

 private:
  struct Shared;
  void Begin(const void* device, size_t bytes, bool fetch);

  const std::function<void(std::function<void()>)> run_;
  const Duration patience_;
  const std::shared_ptr<Shared> shared_;
  bool busy_ = false;
  size_t bytes_ = 0;  // of the copy
  Time until_{};      // when a copy without a result has failed
};

}  // namespace rewire::net
