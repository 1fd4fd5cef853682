// Prometheus text over HTTP on loopback: GET /metrics, one answer per connection. Part of the
// agent's event loop: nothing blocks. A client has a fixed time for all, and the oldest client is
// dropped when there are too many: slow ones keep nobody out.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class MetricsServer {
 public:
  // address: "127.0.0.1:PORT" or "PORT", port 0 for a free one, empty for no server. Anything but
  // loopback is refused: the numbers are the job's own.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(const std::string& address);

  void AddPolls(Time now, std::vector<pollfd>* polls);
  void Handle(Time now, const std::vector<pollfd>& polls, const std::function<std::string()>& text);
  [[nodiscard]] std::optional<Time> NextDeadline() const;
  // Clients closed for their slowness, or for the next one.
  [[nodiscard]] uint64_t dropped() const { return dropped_; }
  // 0: no server.
  [[nodiscard]] int port() const { return port_; }

 private:
  struct Client {
    UniqueFd fd;
    Time deadline{};
    std::string request;
    std::string answer;  // what is not written yet
    bool answering = false;
  };
  // False: the client is done with.
  static bool Serve(Client* client, const std::function<std::string()>& text);

  void AcceptAll(Time now, const std::function<std::string()>& text);

  ListeningSocket listener_;
  int port_ = 0;
  std::list<Client> clients_;  // the oldest first
  uint64_t dropped_ = 0;
};

}  // namespace rewire
