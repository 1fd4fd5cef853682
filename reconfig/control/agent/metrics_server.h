// Serves Prometheus text over HTTP on loopback: GET /metrics, one answer per connection. Part of
// the agent's event loop and owned by its thread; no call blocks. A client that is not served
// within 5 s is dropped, and so is the oldest client if there are more than 16. Therefore slow
// clients cannot exclude others.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {

class MetricsServer {
 public:
  // address: "127.0.0.1:PORT" or "PORT"; port 0: a free port; empty: no server. Refuses addresses
  // that are not loopback: /metrics has no authentication, and only this host may read it.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(const std::string& address);

  // Returns why Listen() refuses an address.
  static absl::Status CheckAddress(const std::string& address);

  void Watch(Time now, PollSet* turn);
  // text: makes the Prometheus text of an answer.
  void Handle(Time now, const PollSet& turn, const std::function<std::string()>& text);
  // Returns the number of clients that were dropped, for slowness or for a newer client.
  [[nodiscard]] uint64_t dropped() const { return dropped_; }
  // Returns the port on which the server listens; 0: no server.
  [[nodiscard]] int port() const { return port_; }

 private:
  struct Client {
    UniqueFd fd;
    Time deadline{};
    std::string request;
    std::string answer;  // the part that is not written yet
    bool answering = false;
  };
  // Returns false when the client is finished.
  static bool Serve(Client* client, const std::function<std::string()>& text);

  void AcceptAll(Time now, const std::function<std::string()>& text);

  ListeningSocket listener_;
  int port_ = 0;
  std::list<Client> clients_;  // the oldest first
  uint64_t dropped_ = 0;
};

}  // namespace rewire::control
