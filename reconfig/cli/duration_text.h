// Durations as people write them on a command line. Pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"

namespace rewire {

// "120s", "2m", "500ms", "1h", "1.5s"; a bare number is seconds. Not negative, at most ten days.
absl::StatusOr<milliseconds> ParseDuration(std::string_view text);
// "812 ms", "3.2 s", "2 min 5 s".
std::string DurationText(double milliseconds);

}  // namespace rewire
