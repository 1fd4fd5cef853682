// Converts a transition into a Chrome/Perfetto trace: one track per member, one for the leader.
// Pure.
#pragma once

#include <string>

#include "reconfig/control/agent/transition_log.h"

namespace rewire::control {

// Returns the JSON object format of the trace event specification. Times are in microseconds from
// the transition's beginning.
std::string TraceJson(const TransitionEntry& entry, const std::string& job, Time now);

}  // namespace rewire::control
