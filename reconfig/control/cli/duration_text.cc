#include "reconfig/control/cli/duration_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace rewire::control {

absl::StatusOr<milliseconds> ParseDuration(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view unit(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  const double scale = unit == "ms"                   ? 1
                       : unit.empty() || unit == "s"  ? 1000
                       : unit == "m" || unit == "min" ? 60000
                       : unit == "h"                  ? 3600000
                                                      : 0;
  if (parsed.ec != std::errc() || scale == 0 || !(number >= 0) || number * scale > 864000000) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", std::string(text), "': must be a time such as 120s, 500ms, 2m (at most ten days)"));
  }
  return milliseconds(std::llround(number * scale));
}

std::string DurationText(double milliseconds) {
  char text[48];
  if (milliseconds < 1000) {
    snprintf(text, sizeof text, "%.*f ms", milliseconds < 10 ? 1 : 0, milliseconds);
  } else if (milliseconds < 120000) {
    snprintf(text, sizeof text, "%.1f s", milliseconds / 1000);
  } else {
    const auto whole = static_cast<long>(milliseconds / 1000);
    snprintf(text, sizeof text, "%ld min %ld s", whole / 60, whole % 60);
  }
  return text;
}

}  // namespace rewire::control
