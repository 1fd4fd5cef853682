#include "reconfig/control/cli/status_text.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "reconfig/control/cli/duration_text.h"

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

}  // namespace

std::string TransitionText(const json& t) {
  std::string out = absl::StrCat("epoch ", Cell(t.at("from_epoch")), "→", Cell(t.at("to_epoch")),
                                 " ", Cell(t.at("kind")), " ", Cell(t.at("result")));
  if (t.at("result") == "aborted") return absl::StrCat(out, ": ", Cell(t.at("reason")));
  absl::StrAppend(&out, ": prepared in ", DurationText(t.at("prepare_ms").get<double>()),
                  ", whole ", DurationText(t.at("total_ms").get<double>()), ", pause at most ",
                  DurationText(t.at("pause_ms_max").get<double>()), ", ",
                  BytesText(t.at("bytes").get<double>()), " moved, ", Cell(t.at("host_waits")),
                  " host waits");
  return out;
}

std::string StatusText(const json& s) {
  std::string out =
      absl::StrCat("job ", Cell(s.at("job")), "  epoch ", Cell(s.at("epoch")), "  ",
                   Cell(s.at("phase")), "  at most ", Cell(s.at("max_members")), " members\n\n");
  out += Row("slot", "member", "pid", "state", "updates", "heard");
  for (const json& m : s.at("members")) {
    out += Row(Cell(m.at("slot")), Cell(m.at("member")), Cell(m.at("pid")), Cell(m.at("state")),
               Cell(m.at("updates")), DurationText(m.at("last_heard_ms").get<double>()) + " ago");
  }
  if (const json& t = s.at("transition"); !t.is_null()) {
    absl::StrAppend(&out, "\nunder way: ", Cell(t.at("kind")), " to epoch ", Cell(t.at("to_epoch")),
                    ", ", Cell(t.at("phase")), ", ", DurationText(t.at("total_ms").get<double>()),
                    "\n");
    for (const json& w : t.at("waiting_for")) {
      absl::StrAppend(&out, "  waiting for member ", Cell(w.at("member")), ": ", Cell(w.at("for")),
                      "\n");
    }
  }
  if (!s.at("pending").empty()) out += "\npending swaps:\n";
  for (const json& p : s.at("pending")) {
    absl::StrAppend(&out, "  communicator ", Cell(p.at("communicator")), " on member ",
                    Cell(p.at("member")), ", to epoch ", Cell(p.at("epoch")), ": ",
                    Cell(p.at("why")), "\n");
  }
  if (!s.at("transitions").empty()) out += "\n";
  for (const json& t : s.at("transitions")) absl::StrAppend(&out, TransitionText(t), "\n");
  return out;
}

}  // namespace rewire::control
