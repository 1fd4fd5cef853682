#include "reconfig/control/agent/status_json.h"

#include <algorithm>
#include <string>

#include "reconfig/base/counters.h"

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
                 const std::map<MemberId, pid_t>& pids, Time now) {
  const WorldRecord& record = leader.record();
  json out = {{"schema", 1},
              {"epoch", record.world.epoch},
              {"phase", std::string(elastic::PhaseName(leader.phase()))},
              {"steady", leader.steady()},
              {"done", leader.done()}};
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
                     {"last_heard_ms", ToMilliseconds(m.silent)}});
  }
  json committed = json::array();
  for (const json& m : world) {
    if (!m["slot"].is_null()) committed.push_back(m);
  }
  out["world"] = {{"epoch", record.world.epoch}, {"members", committed}};
  out["members"] = world;
  json pending = json::array();
  for (const elastic::PendingCut& p : leader.Pending()) {
    pending.push_back({{"communicator", elastic::ShortName(p.communicator)},
                       {"member", p.member},
                       {"epoch", p.swap.epoch},
                       {"why", p.why}});
  }
  out["pending"] = pending;
  out["transition"] = log.current() == nullptr ? json() : TransitionStatus(*log.current(), now);
  json last = json::array();
  for (const TransitionEntry& e : log.entries()) {
    if (e.end) last.push_back(TransitionStatus(e, now));
  }
  out["transitions"] = last;
  return out;
}

}  // namespace rewire::control
