// Answers commands on control connections, at once or after the awaited event. Owned by the agent's
// thread.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/control/agent/connections.h"
#include "reconfig/control/agent/metrics.h"
#include "reconfig/control/agent/transition_log.h"
#include "reconfig/elastic/leader/leader.h"

namespace rewire::control {

class ControlDesk {
 public:
  using Submit = std::function<absl::StatusOr<uint64_t>(const elastic::ChangeRequest&)>;
  using Status = std::function<nlohmann::json()>;

  // job: the job's name. submit: gives a request to the leader. status: makes the answer to the
  // command `status`.
  ControlDesk(std::string job, const elastic::Leader* leader, const TransitionLog* log,
              Metrics* metrics, Connections* connections, Submit submit, Status status);

  void OnCommand(Time now, Connections::Id id, const nlohmann::json& command);
  // Sends progress to the connections that wait for a request of the note.
  void OnNote(const elastic::Note& note);
  // Answers every wait that is over. Call after every batch of events, and at NextDeadline().
  void Settle(Time now);
  void OnClosed(Connections::Id id);
  [[nodiscard]] std::optional<Time> NextDeadline() const;

 private:
  struct Waiting {
    Connections::Id connection = 0;
    std::optional<uint64_t> request;  // of a change; without it a `wait` command
    std::optional<Epoch> epoch;       // of `wait --for epoch N`
    bool progress = false;
    Time deadline{};
  };
  absl::StatusOr<nlohmann::json> Answer(Time now, Connections::Id id, const std::string& name,
                                        const nlohmann::json& command);
  absl::Status Wait(Time now, Connections::Id id, const nlohmann::json& command);
  absl::Status Change(Time now, Connections::Id id, const elastic::ChangeRequest& change,
                      const nlohmann::json& command);
  // Returns the last answer of a wait; nullopt while the wait continues.
  [[nodiscard]] std::optional<nlohmann::json> Over(const Waiting& w, Time now) const;
  [[nodiscard]] nlohmann::json World() const;

  const std::string job_;
  const elastic::Leader* const leader_;
  const TransitionLog* const log_;
  Metrics* const metrics_;
  Connections* const connections_;
  const Submit submit_;
  const Status status_;
  std::vector<Waiting> waiting_;
};

}  // namespace rewire::control
