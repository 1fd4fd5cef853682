#include "reconfig/control/cli/knobs.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reconfig/base/settings.h"

namespace rewire::control {
namespace {

std::string Json(const std::vector<SettingRow>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const SettingRow& r : rows) {
    out.push_back({{"variable", r.variable},
                   {"type", r.type},
                   {"default", r.default_value},
                   {"range", r.range},
                   {"unit", r.unit},
                   {"text", r.text}});
  }
  return nlohmann::json{{"schema", 1}, {"settings", out}}.dump(2) + "\n";
}

std::string Markdown(const std::vector<SettingRow>& rows) {
  std::string out = "| variable | default | range | meaning |\n|---|---|---|---|\n";
  for (const SettingRow& r : rows) {
    // A bar separates columns, also inside code.
    const std::string range = absl::StrReplaceAll(r.range, {{"|", ", "}});
    absl::StrAppend(&out, "| `", r.variable, "` | ", r.default_value, " | ", range,
                    strlen(r.unit) == 0 ? "" : " ", r.unit, " | ", r.text, " |\n");
  }
  return out;
}

std::string Text(const std::vector<SettingRow>& rows) {
  size_t widest = 0;
  for (const SettingRow& r : rows) widest = std::max(widest, strlen(r.variable));
  std::string out;
  for (const SettingRow& r : rows) {
    const std::string name =
        std::string(r.variable) + std::string(widest - strlen(r.variable), ' ');
    absl::StrAppend(&out, name, "  ", r.text, "\n", std::string(widest, ' '), "  default ",
                    r.default_value.empty() ? "empty" : r.default_value);
    if (!r.range.empty()) absl::StrAppend(&out, ", ", r.range);
    absl::StrAppend(&out, strlen(r.unit) == 0 ? "" : " ", r.unit, "\n");
  }
  return out;
}

}  // namespace

std::string KnobsTable(KnobsFormat format) {
  const std::vector<SettingRow> rows = Settings::Table();
  switch (format) {
    case KnobsFormat::kJson:
      return Json(rows);
    case KnobsFormat::kMarkdown:
      return Markdown(rows);
    case KnobsFormat::kText:
      break;
  }
  return Text(rows);
}

}  // namespace rewire::control
