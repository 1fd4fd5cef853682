// A transition as a Chrome/Perfetto trace: one track per member, one for the leader. Pure.
#pragma once

#include <string>

#include "reconfig/agent/transition_log.h"

namespace rewire {

// The JSON object format of the trace event specification, times in microseconds from its
// beginning.
std::string TraceJson(const TransitionEntry& entry, const std::string& job, Time now);

}  // namespace rewire
