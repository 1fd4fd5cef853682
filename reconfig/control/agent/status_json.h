// Builds the answer to `rewire status --json` (schema 1). Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "reconfig/control/agent/transition_log.h"
#include "reconfig/elastic/leader/leader.h"

namespace rewire::control {

nlohmann::json TransitionStatus(const TransitionEntry& entry, Time now);
// pids: of the members whose process is known.
nlohmann::json WorldStatus(const elastic::Leader& leader, const TransitionLog& log,
                           const std::map<MemberId, pid_t>& pids, Time now);

}  // namespace rewire::control
