// The job as JSON, for commands and trace files: the answer to `rewire status --json` (schema 1),
// and one transition as a Chrome/Perfetto trace with one track per member and one for the leader.
// Pure, except WriteTrace().
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "reconfig/control/agent/transition_log.h"
#include "reconfig/elastic/leader/leader.h"

namespace rewire::control {

nlohmann::json TransitionStatus(const TransitionEntry& entry, Time now);
// pids: of the members whose process is known. ended_unattached: members that ended well before
// they attached.
nlohmann::json WorldStatus(const elastic::Leader& leader, const TransitionLog& log,
                           const std::map<MemberId, pid_t>& pids,
                           const std::set<MemberId>& ended_unattached, Time now);

// Returns the JSON object format of the trace event specification. Times are in microseconds from
// the transition's beginning.
std::string TraceJson(const TransitionEntry& entry, const std::string& job, Time now);
// Writes the trace of an ended transition into a new file of the folder. Logs a failure.
void WriteTrace(const TransitionEntry& entry, const std::string& folder, const std::string& job,
                Time now);

}  // namespace rewire::control
