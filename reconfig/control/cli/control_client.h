// A command's connection to an agent. Thread-compatible; every call has a deadline.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"

namespace rewire::control {

class ControlClient {
 public:
  using OnProgress = std::function<void(const nlohmann::json& progress)>;

  // Connects to an agent. Waits up to five seconds for an agent that is being started again.
  static absl::StatusOr<ControlClient> Connect(const std::string& socket);

  // Returns the last answer when it is ok; otherwise its error text (kFailedPrecondition;
  // kDeadlineExceeded when the agent reports that a wait timed out). kUnavailable: the connection
  // to the agent has ended.
  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& command, Duration within,
                                     const OnProgress& on_progress = nullptr);

 private:
  explicit ControlClient(FramedSocket socket, std::string path)
      : socket_(std::move(socket)), path_(std::move(path)) {}
  FramedSocket socket_;
  std::string path_;
};

}  // namespace rewire::control
