// The texts that commands read and print: durations, the answer to `rewire status`, and the table
// of settings for `rewire knobs` and docs/settings.md. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"

namespace rewire::control {

// Parses "120s", "2m", "500ms", "1h", "1.5s"; a number without a unit is in seconds. Fails for a
// negative duration and for more than ten days.
absl::StatusOr<milliseconds> ParseDuration(std::string_view text);
// Returns "812 ms", "3.2 s" or "2 min 5 s".
std::string DurationText(double milliseconds);

// Returns the text of `rewire status` for the agent's answer (job_json.h).
std::string StatusText(const nlohmann::json& status);
// Returns one line about an ended transition: "epoch 3→4 boundary committed: prepared in 1.2 s,
// ...".
std::string TransitionText(const nlohmann::json& transition);

enum class KnobsFormat { kText, kJson, kMarkdown };
// Returns the table of settings.
std::string KnobsTable(KnobsFormat format);

}  // namespace rewire::control
