// A command's connection to an agent. One thread; every call has a deadline.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"

namespace rewire {

class ControlClient {
 public:
  using OnProgress = std::function<void(const nlohmann::json& progress)>;

  // An agent that is being started again is waited for, up to five seconds.
  static absl::StatusOr<ControlClient> Connect(const std::string& socket);

  // The last answer when it says ok; its error text otherwise (kFailedPrecondition;
  // kDeadlineExceeded when the agent says that a wait timed out). kUnavailable: the agent has gone.
  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& command, Duration within,
                                     const OnProgress& on_progress = nullptr);

 private:
  explicit ControlClient(FramedSocket socket, std::string path)
      : socket_(std::move(socket)), path_(std::move(path)) {}
  FramedSocket socket_;
  std::string path_;
};

}  // namespace rewire
