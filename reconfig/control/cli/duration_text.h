// Reads and prints durations for a command line. Pure.
#pragma once

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

}  // namespace rewire::control
