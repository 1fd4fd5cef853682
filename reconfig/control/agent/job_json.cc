// Builds the job's status and its traces; see job_json.h. Pure, except WriteTrace().
#include "reconfig/control/agent/job_json.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/log.h"
#include "reconfig/base/own_file.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {
namespace {

using nlohmann::json;

const char* StateOf(const elastic::MemberStatus& m) {
  if (m.finished) return "finished";
  if (!m.connected) return m.slot ? "disconnected" : "gone";
  return m.slot ? "training" : "joining";
}

// Returns the time until every member was READY. A loss has no preparation: until it was armed.
double PrepareMs(const TransitionEntry& entry, Time now) {
  for (const TransitionSpan& s : entry.spans) {
    const bool ready = s.name == elastic::PhaseName(elastic::Phase::kPropose) ||
                       s.name == elastic::PhaseName(elastic::Phase::kArmed);
    if (!s.member && ready) return ToMilliseconds(s.begin - entry.begin);
  }
  return ToMilliseconds(entry.end.value_or(now) - entry.begin);
}

// Returns the counters of a member's process, by their names in /metrics.
json CountersOf(const elastic::Heartbeat& heartbeat) {
  json out = json::object();
  for (const CounterInfo& info : CounterTable()) {
    const uint64_t value = ValueIn(heartbeat.counters, info.counter);
    if (value == 0) continue;
    std::string name = info.metric;
    if (*info.label != '\0') name += "{" + std::string(info.label) + "}";
    out[name] = info.kind == CounterKind::kNanoseconds ? json(static_cast<double>(value) / 1e9)
                                                       : json(value);
  }
  return out;
}

double Microseconds(Duration d) { return static_cast<double>(ToNanoseconds(d)) / 1000.0; }

// Returns the track; track 0 is the leader's.
uint64_t Track(const std::optional<MemberId>& member) { return member ? uint64_t{*member} + 1 : 0; }

}  // namespace

json TransitionStatus(const TransitionEntry& entry, Time now) {
  json out = {
      {"number", entry.number},
      {"kind", std::string(KindName(entry.kind))},
      {"from_epoch", entry.from},
      {"to_epoch", entry.to},
      {"summary", entry.summary},
      {"phase", std::string(elastic::PhaseName(entry.phase))},
      {"members_before", entry.members_before},
      {"members_after", entry.members_after},
      {"prepare_ms", PrepareMs(entry, now)},
      {"total_ms", ToMilliseconds(entry.entered.value_or(entry.end.value_or(now)) - entry.begin)},
      {"result", entry.entered     ? "committed"
                 : !entry.end      ? "running"
                 : entry.committed ? "committed"
                                   : "aborted"},
      {"reason", entry.result}};
  json phases = json::array();
  for (const TransitionSpan& s : entry.spans) {
    if (s.member) continue;
    phases.push_back({{"phase", s.name}, {"ms", ToMilliseconds(s.end.value_or(now) - s.begin)}});
  }
  out["phases"] = phases;
  json parts = json::array();
  uint64_t bytes = 0;
  uint64_t waits = 0;
  uint64_t pause = 0;
  for (const auto& [member, part] : entry.parts) {
    uint64_t part_waits = 0;
    for (const auto& [communicator, count] : part.host_waits) part_waits += count;
    parts.push_back({{"member", member},
                     {"bytes_in", part.bytes_in},
                     {"bytes_out", part.bytes_out},
                     {"host_waits", part_waits},
                     {"pause_ms", static_cast<double>(part.pause_ns) / 1e6}});
    bytes += part.bytes_in;
    waits += part_waits;
    pause = std::max(pause, part.pause_ns);
  }
  out["members"] = parts;
  out["bytes"] = bytes;
  out["host_waits"] = waits;
  out["pause_ms_max"] = static_cast<double>(pause) / 1e6;
  json waiting = json::array();
  if (!entry.end) {
    for (const auto& [member, what] : entry.WaitingFor()) {
      waiting.push_back({{"member", member}, {"for", what}});
    }
  }
  out["waiting_for"] = waiting;
  return out;
}

json WorldStatus(const elastic::Leader& leader, const TransitionLog& log,
                 const std::map<MemberId, pid_t>& pids, const std::set<MemberId>& ended_unattached,
                 Time now) {
  const WorldRecord& record = leader.record();
  json out = {{"schema", 1},
              {"epoch", record.world.epoch},
              {"phase", std::string(elastic::PhaseName(leader.phase()))},
              {"steady", leader.steady()},
              {"done", leader.done()},
              {"loss", leader.loss()}};
  std::vector<elastic::MemberStatus> members = leader.Members(now);
  const auto key = [](const elastic::MemberStatus& m) {
    return std::pair(m.slot.value_or(UINT32_MAX), m.member);
  };
  std::sort(members.begin(), members.end(),
            [&](const elastic::MemberStatus& a, const elastic::MemberStatus& b) {
              return key(a) < key(b);
            });
  json world = json::array();
  for (const elastic::MemberStatus& m : members) {
    const auto pid = pids.find(m.member);
    world.push_back({{"slot", m.slot ? json(*m.slot) : json()},
                     {"member", m.member},
                     {"pid", pid == pids.end() ? json() : json(pid->second)},
                     {"state", StateOf(m)},
                     {"cooperates", m.cooperates},
                     {"updates", m.counts.updates},
                     {"counters", m.connected ? CountersOf(m.counts) : json::object()},
                     {"last_heard_ms", m.silent ? json(ToMilliseconds(*m.silent)) : json()}});
  }
  json committed = json::array();
  for (const json& m : world) {
    if (!m["slot"].is_null()) committed.push_back(m);
  }
  out["world"] = {{"epoch", record.world.epoch}, {"members", committed}};
  out["members"] = world;
  json unattached = json::array();
  for (const auto& process : pids) {
    const bool known = std::any_of(members.begin(), members.end(),
                                   [&](const auto& m) { return m.member == process.first; });
    if (!known) unattached.push_back({{"member", process.first}, {"pid", process.second}});
  }
  for (const MemberId member : ended_unattached) {
    unattached.push_back({{"member", member}, {"pid", json()}});
  }
  out["unattached"] = unattached;
  json pending = json::array();
  for (const elastic::PendingCut& p : leader.Pending()) {
    pending.push_back({{"communicator", elastic::ShortName(p.communicator)},
                       {"member", p.member},
                       {"epoch", p.swap.epoch},
                       {"why", p.why}});
  }
  out["pending"] = pending;
  json pinned = json::array();
  for (const elastic::PinnedCommunicator& p : leader.Pinned()) {
    pinned.push_back({{"communicator", elastic::ShortName(p.communicator)},
                      {"member", p.member},
                      {"for_ms", ToMilliseconds(now - p.since)},
                      {"why", p.why}});
  }
  out["pinned"] = pinned;
  out["transition"] = log.current() == nullptr ? json() : TransitionStatus(*log.current(), now);
  if (log.current() != nullptr) out["transition"]["waits"] = leader.waits();
  json last = json::array();
  for (const TransitionEntry& e : log.entries()) {
    if (e.end) last.push_back(TransitionStatus(e, now));
  }
  out["transitions"] = last;
  return out;
}

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

void WriteTrace(const TransitionEntry& entry, const std::string& folder, const std::string& job,
                Time now) {
  // A later attempt may commit an aborted attempt's epoch: the file names keep both traces.
  const std::string path =
      absl::StrCat(folder, "/epoch-", entry.to, entry.committed ? "" : "-aborted",
                   entry.committed ? "" : absl::StrCat("-", entry.number), ".json");
  const std::string fresh = path + ".new";
  UniqueFd out;
  FileStatus s = MakeOwnFile(fresh, 0644, &out);
  if (s.ok()) s = WriteWhole(out.get(), TraceJson(entry, job, now), fresh);
  if (s.ok() && rename(fresh.c_str(), path.c_str()) != 0) s = {errno, path + ": rename"};
  if (s.ok()) return;
  unlink(fresh.c_str());
  REWIRE_WARN("write trace: %s", s.text.c_str());
}

}  // namespace rewire::control
