// The agent's metrics in Prometheus' text format: for `rewire metrics`, and over HTTP on loopback.
//
// Values are set on the agent's thread. The HTTP server has threads of its own, which end with this
// object and touch nothing but the registry.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/agent/connections.h"
#include "reconfig/agent/transition_log.h"
#include "reconfig/transition/leader.h"

namespace prometheus {
class Exposer;
class Registry;
}  // namespace prometheus

namespace rewire {

class Metrics {
 public:
  // address: "127.0.0.1:PORT" or "PORT", port 0 for a free one, empty for no HTTP. Anything but
  // loopback is refused: the numbers are the job's own.
  static absl::StatusOr<std::unique_ptr<Metrics>> Start(const std::string& address);
  ~Metrics();

  void Set(const Leader& leader, const Connections& connections, Time now);
  void OnTransition(const TransitionEntry& entry);
  void OnStoreWrite(Duration took, bool ok);
  void OnRequest(const std::string& command, bool accepted);

  [[nodiscard]] std::string Text() const;
  // The port of the HTTP server; 0: none.
  [[nodiscard]] int port() const { return port_; }

 private:
  Metrics();
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_ = 0;
  Time started_;
  Time progress_;
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace rewire
