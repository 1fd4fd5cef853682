#include "reconfig/base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

namespace rewire {
namespace {

void ParseInt(const char* variable, const std::string& value, int64_t low, int64_t high,
              int64_t* out, std::string* error) {
  errno = 0;
  char* end = nullptr;
  const long long parsed = strtoll(value.c_str(), &end, 10);
  if (errno != 0 || end == value.c_str() || *end != '\0' || parsed < low || parsed > high) {
    *error += std::string(variable) + "=" + value + ": must be a whole number from " +
              std::to_string(low) + " to " + std::to_string(high) + "\n";
    return;
  }
  *out = parsed;
}

void ParseText(const char* variable, const std::string& value, std::string_view allowed,
               std::string* out, std::string* error) {
  for (std::string_view rest = allowed; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find('|'));
    if (word == value) break;
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (rest.empty()) {
      *error +=
          std::string(variable) + "=" + value + ": must be one of " + std::string(allowed) + "\n";
      return;
    }
  }
  *out = value;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> Environment() {
  std::vector<std::string> out;
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) out.emplace_back(*e);
  return out;
}

}  // namespace

const Settings& Settings::Get() {
  // Never destroyed: threads and exit handlers read the settings until the process ends.
  static const auto* const settings = new Settings(Environment());
  return *settings;
}

std::vector<SettingRow> Settings::Table() {
  std::vector<SettingRow> rows;
#define REWIRE_SETTING_INT(accessor, variable, default_value, low, high, unit, text) \
  rows.push_back({#variable, "int", std::to_string(default_value),                   \
                  std::to_string(low) + ".." + std::to_string(high), unit, text});
#define REWIRE_SETTING_TEXT(accessor, variable, default_value, allowed, text) \
  rows.push_back({#variable, "text", default_value, allowed, "", text});
#include "reconfig/base/settings.def"
#undef REWIRE_SETTING_INT
#undef REWIRE_SETTING_TEXT
  return rows;
}

Settings::Settings(const std::vector<std::string>& environment) {
  std::map<std::string, std::string, std::less<>> given;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (entry.rfind("REWIRE_", 0) == 0 && equals != std::string::npos) {
      given[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
#define REWIRE_SETTING_INT(accessor, variable, default_value, low, high, unit, text) \
  if (auto it = given.find(#variable); it != given.end()) {                          \
    ParseInt(#variable, it->second, low, high, &accessor##_, &error_);               \
    given.erase(it);                                                                 \
  }
#define REWIRE_SETTING_TEXT(accessor, variable, default_value, allowed, text) \
  if (auto it = given.find(#variable); it != given.end()) {                   \
    ParseText(#variable, it->second, allowed, &accessor##_, &error_);         \
    given.erase(it);                                                          \
  }
#include "reconfig/base/settings.def"
#undef REWIRE_SETTING_INT
#undef REWIRE_SETTING_TEXT
  if (error_.empty() && silence_ms_ <= heartbeat_ms_) {
    error_ = "REWIRE_SILENCE_MS=" + std::to_string(silence_ms_) +
             ": must be above REWIRE_HEARTBEAT_MS=" + std::to_string(heartbeat_ms_) +
             " (a member would count as lost between two heartbeats)\n";
  }
  // After a gap of half of the longest silence all members get their full time again (peers.h).
  heartbeat_ms_ = std::min(heartbeat_ms_, silence_ms_ / 4);
  for (const auto& [name, value] : given) {
    const char* nearest = "";
    size_t best = SIZE_MAX;
    for (const SettingRow& row : Table()) {
      const size_t distance = EditDistance(name, row.variable);
      if (distance < best) {
        best = distance;
        nearest = row.variable;
      }
    }
    unknown_ += name + ": unknown setting; did you mean " + nearest + "?\n";
  }
}

}  // namespace rewire
