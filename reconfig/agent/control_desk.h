// Answers commands on control connections, at once or when what they wait for has come.
// Owned by the agent; its thread only.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/agent/connections.h"
#include "reconfig/agent/metrics.h"
#include "reconfig/agent/transition_log.h"
#include "reconfig/transition/leader.h"

namespace rewire {

class ControlDesk {
 public:
  using Submit = std::function<absl::StatusOr<uint64_t>(const ChangeRequest&)>;
  using Status = std::function<nlohmann::json()>;

  // submit gives a request to the leader; status makes the answer to `status`.
  ControlDesk(const Leader* leader, const TransitionLog* log, Metrics* metrics,
              Connections* connections, Submit submit, Status status);

  void OnCommand(Time now, Connections::Id id, const nlohmann::json& command);
  // Progress for those who wait for a request.
  void OnNote(const Note& note);
  // Answers everyone whose wait is over. After every batch of events, and at NextDeadline().
  void Settle(Time now);
  void OnClosed(Connections::Id id);
  [[nodiscard]] std::optional<Time> NextDeadline() const;

 private:
  struct Waiting {
    Connections::Id connection = 0;
    std::optional<uint64_t> request;  // a change; otherwise a `wait`
    std::optional<Epoch> epoch;       // `wait --for epoch N`
    bool progress = false;
    Time deadline{};
  };
  absl::StatusOr<nlohmann::json> Answer(Time now, Connections::Id id, const std::string& name,
                                        const nlohmann::json& command);
  absl::Status Wait(Time now, Connections::Id id, const nlohmann::json& command);
  absl::Status Change(Time now, Connections::Id id, const ChangeRequest& change,
                      const nlohmann::json& command);
  // The last answer of a wait, or nothing while it goes on.
  [[nodiscard]] std::optional<nlohmann::json> Over(const Waiting& w, Time now) const;
  [[nodiscard]] nlohmann::json World() const;

  const Leader* const leader_;
  const TransitionLog* const log_;
  Metrics* const metrics_;
  Connections* const connections_;
  const Submit submit_;
  const Status status_;
  std::vector<Waiting> waiting_;
};

}  // namespace rewire
