// The agent's metrics in Prometheus' text format, for `rewire metrics` and the HTTP server. Owned
// by the agent's thread.
#pragma once

#include <memory>
#include <string>

#include "reconfig/control/agent/connections.h"
#include "reconfig/control/agent/transition_log.h"
#include "reconfig/elastic/leader/leader.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace rewire::control {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Call in every turn of the agent's loop: notes when the phase changed.
  void OnTurn(const elastic::Leader& leader, Time now);
  // Sets the values that Text() returns. Costs a few microseconds for each member.
  void Set(const elastic::Leader& leader, const Connections& connections, Time now);
  // Sets the number of dropped /metrics clients since the start.
  void SetDroppedClients(uint64_t count);
  void OnTransition(const TransitionEntry& entry);
  void OnStoreWrite(Duration took, bool ok);
  void OnRequest(const std::string& command, bool accepted);

  [[nodiscard]] std::string Text() const;

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  Time started_;
  elastic::Phase phase_ = elastic::Phase::kForming;
  Time progress_;  // when the phase last changed
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace rewire::control
