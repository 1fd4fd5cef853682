// Formats and parses the texts of commands; see command_text.h. Pure.
#include "reconfig/control/cli/command_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reconfig/base/settings.h"

namespace rewire::control {
namespace {

using nlohmann::json;

std::string Cell(const json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string BytesText(double bytes) {
  const char* unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  for (; bytes >= 1024 && i < 4; ++i) bytes /= 1024;
  char text[32];
  snprintf(text, sizeof text, "%.*f %s", i == 0 ? 0 : 1, bytes, unit[i]);
  return text;
}

std::string Row(const std::string& slot, const std::string& member, const std::string& pid,
                const std::string& state, const std::string& updates, const std::string& heard) {
  char text[160];
  snprintf(text, sizeof text, "%5s %7s %8s  %-13s %9s  %s\n", slot.c_str(), member.c_str(),
           pid.c_str(), state.c_str(), updates.c_str(), heard.c_str());
  return text;
}

std::string Json(const std::vector<SettingRow>& rows) {
  json out = json::array();
  for (const SettingRow& r : rows) {
    out.push_back({{"variable", r.variable},
                   {"type", r.type},
                   {"default", r.default_value},
                   {"range", r.range},
                   {"unit", r.unit},
                   {"text", r.text}});
  }
  return json{{"schema", 1}, {"settings", out}}.dump(2) + "\n";
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

std::string TransitionText(const json& t) {
  std::string out = absl::StrCat("epoch ", Cell(t.at("from_epoch")), "→", Cell(t.at("to_epoch")),
                                 " ", Cell(t.at("kind")), " ", Cell(t.at("result")));
  if (t.at("result") == "aborted") return absl::StrCat(out, ": ", Cell(t.at("reason")));
  absl::StrAppend(&out, ": prepared in ", DurationText(t.at("prepare_ms").get<double>()),
                  ", whole ", DurationText(t.at("total_ms").get<double>()), ", ");
  // A swap has no update boundary at which members wait, and moves nothing.
  if (t.at("kind") != "swap") {
    absl::StrAppend(&out, "pause at most ", DurationText(t.at("pause_ms_max").get<double>()), ", ",
                    BytesText(t.at("bytes").get<double>()), " moved, ");
  }
  absl::StrAppend(&out, Cell(t.at("host_waits")), " host waits");
  return out;
}

std::string StatusText(const json& s) {
  std::string out =
      absl::StrCat("job ", Cell(s.at("job")), "  epoch ", Cell(s.at("epoch")), "  ",
                   Cell(s.at("phase")), "  at most ", Cell(s.at("max_members")), " members\n\n");
  out += Row("slot", "member", "pid", "state", "updates", "heard");
  for (const json& m : s.at("members")) {
    const json& heard = m.at("last_heard_ms");
    out += Row(Cell(m.at("slot")), Cell(m.at("member")), Cell(m.at("pid")), Cell(m.at("state")),
               Cell(m.at("updates")),
               heard.is_null() ? "-" : DurationText(heard.get<double>()) + " ago");
  }
  if (const std::string loss = s.value("loss", ""); !loss.empty()) {
    absl::StrAppend(&out, "\n", loss, "\n");
  }
  if (const json& t = s.at("transition"); !t.is_null()) {
    absl::StrAppend(&out, "\nunder way: ", Cell(t.at("kind")), " to epoch ", Cell(t.at("to_epoch")),
                    ", ", Cell(t.at("phase")), ", ", DurationText(t.at("total_ms").get<double>()),
                    "\n");
    if (const std::string waits = t.value("waits", ""); !waits.empty()) {
      absl::StrAppend(&out, "  waits: ", waits, "\n");
    }
    for (const json& w : t.at("waiting_for")) {
      absl::StrAppend(&out, "  waiting for member ", Cell(w.at("member")), ": ", Cell(w.at("for")),
                      "\n");
    }
  }
  if (!s.at("unattached").empty()) {
    out += "\nnot attached: a member attaches with its first communicator:\n";
    for (const json& u : s.at("unattached")) {
      const json& pid = u.at("pid");
      absl::StrAppend(&out, "  member ", Cell(u.at("member")),
                      pid.is_null() ? ", which has ended with status 0: the world waits for it"
                                    : absl::StrCat(", process ", Cell(pid)),
                      "\n");
    }
    out +=
        "  Rewire never sees an NCCL that is linked statically or opened by a path: "
        "docs/limits.md, Loading\n";
  }
  if (!s.at("pending").empty()) out += "\npending swaps:\n";
  for (const json& p : s.at("pending")) {
    absl::StrAppend(&out, "  communicator ", Cell(p.at("communicator")), " on member ",
                    Cell(p.at("member")), ", to epoch ", Cell(p.at("epoch")), ": ",
                    Cell(p.at("why")), "\n");
  }
  if (!s.at("pinned").empty()) out += "\npinned communicators, which are not rebuilt:\n";
  for (const json& p : s.at("pinned")) {
    absl::StrAppend(&out, "  communicator ", Cell(p.at("communicator")), " on member ",
                    Cell(p.at("member")), ", for ", DurationText(p.at("for_ms").get<double>()),
                    ": ", Cell(p.at("why")), "\n");
  }
  if (!s.at("transitions").empty()) out += "\n";
  for (const json& t : s.at("transitions")) absl::StrAppend(&out, TransitionText(t), "\n");
  return out;
}

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
