#include "reconfig/control/agent/trace_json.h"

#include <nlohmann/json.hpp>
#include <set>

namespace rewire::control {
namespace {

double Microseconds(Duration d) { return static_cast<double>(ToNanoseconds(d)) / 1000.0; }

// Returns the track; track 0 is the leader's.
uint64_t Track(const std::optional<MemberId>& member) { return member ? uint64_t{*member} + 1 : 0; }

}  // namespace

std::string TraceJson(const TransitionEntry& entry, const std::string& job, Time now) {
  nlohmann::json events = nlohmann::json::array();
  const auto name = [&events](const char* what, uint64_t track, const std::string& text) {
    events.push_back(
        {{"ph", "M"}, {"pid", 1}, {"tid", track}, {"name", what}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, "rewire " + job);
  name("thread_name", 0, "leader");
  std::set<MemberId> members;
  for (const TransitionSpan& s : entry.spans) {
    if (s.member) members.insert(*s.member);
  }
  for (const MemberId m : members) {
    name("thread_name", Track(m), "member " + std::to_string(m));
  }
  const auto span = [&](const std::string& text, uint64_t track, Time begin, Time end) {
    events.push_back({{"ph", "X"},
                      {"pid", 1},
                      {"tid", track},
                      {"cat", std::string(KindName(entry.kind))},
                      {"name", text},
                      {"ts", Microseconds(begin - entry.begin)},
                      {"dur", Microseconds(end - begin)}});
  };
  const Time end = entry.end.value_or(now);
  const std::string title = std::string(KindName(entry.kind)) + " " + std::to_string(entry.from) +
                            "→" + std::to_string(entry.to) +
                            (entry.committed ? ""
                             : entry.end     ? " (aborted)"
                                             : " (under way)");
  span(title, 0, entry.begin, end);
  for (const TransitionSpan& s : entry.spans) {
    span(s.name, Track(s.member), s.begin, s.end.value_or(end));
  }
  const nlohmann::json trace = {{"displayTimeUnit", "ms"},
                                {"otherData",
                                 {{"job", job},
                                  {"epoch", entry.to},
                                  {"summary", entry.summary},
                                  {"result", entry.committed ? "committed" : entry.result}}},
                                {"traceEvents", events}};
  return trace.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rewire::control
