// The families of metrics and their values; see metrics.h. Owned by the agent's thread.
#include "reconfig/control/agent/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "reconfig/base/counters.h"

namespace rewire::control {
namespace {

using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSeconds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                              1,     3,     10,   30,   100, 300};

double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// Raises a counter to a value that is counted elsewhere.
void Follow(prometheus::Counter& counter, double value) {
  counter.Increment(std::max(0.0, value - counter.Value()));
}

// Returns a member's labels for a row of counters.def.
prometheus::Labels LabelsOf(MemberId member, const CounterInfo& info) {
  prometheus::Labels labels = {{"member", std::to_string(member)}};
  const std::string_view label = info.label;
  if (const size_t equals = label.find('='); equals != std::string_view::npos) {
    labels.emplace(label.substr(0, equals), label.substr(equals + 1));
  }
  return labels;
}

double Shown(const CounterInfo& info, uint64_t value) {
  const auto shown = static_cast<double>(value);
  return info.kind == CounterKind::kNanoseconds ? shown / 1e9 : shown;
}

}  // namespace

struct Metrics::Families {
  explicit Families(prometheus::Registry& r)
      : epoch(prometheus::BuildGauge()
                  .Name("rewire_epoch")
                  .Help("Epoch of the committed world")
                  .Register(r)),
        members(prometheus::BuildGauge()
                    .Name("rewire_members")
                    .Help("Number of members, by state")
                    .Register(r)),
        updates(prometheus::BuildGauge()
                    .Name("rewire_member_updates")
                    .Help("Number of updates that a member has begun")
                    .Register(r)),
        silent(prometheus::BuildGauge()
                   .Name("rewire_member_silent_seconds")
                   .Help("Time since the last message of a member")
                   .Register(r)),
        background(prometheus::BuildGauge()
                       .Name("rewire_transition_phase")
                       .Help("Phase of the current transition, as a number; 2: steady")
                       .Register(r)),
        stalled(
            prometheus::BuildGauge()
                .Name("rewire_transition_progress_age_seconds")
                .Help(
                    "Time since the current transition last made progress; 0 in STEADY and STOPPED")
                .Register(r)),
        open(prometheus::BuildGauge()
                 .Name("rewire_connections")
                 .Help("Open connections to the agent")
                 .Register(r)),
        uptime(prometheus::BuildGauge()
                   .Name("rewire_agent_uptime_seconds")
                   .Help("Time since this agent started")
                   .Register(r)),
        closed(prometheus::BuildCounter()
                   .Name("rewire_connections_closed_total")
                   .Help("Connections that the agent closed, by reason")
                   .Register(r)),
        accepted(prometheus::BuildCounter()
                     .Name("rewire_connections_accepted_total")
                     .Help("Connections that the agent accepted")
                     .Register(r)),
        dropped(prometheus::BuildCounter()
                    .Name("rewire_messages_dropped_total")
                    .Help("Messages dropped: another epoch, or a sender that is not a member")
                    .Register(r)),
        transitions(prometheus::BuildCounter()
                        .Name("rewire_transitions_total")
                        .Help("Transitions that ended, by kind and result")
                        .Register(r)),
        requests(prometheus::BuildCounter()
                     .Name("rewire_requests_total")
                     .Help("Requests for a change, by command and result")
                     .Register(r)),
        bytes(prometheus::BuildCounter()
                  .Name("rewire_state_bytes_total")
                  .Help("State bytes that members received in transitions")
                  .Register(r)),
        waits(prometheus::BuildCounter()
                  .Name("rewire_host_waits_total")
                  .Help("Number of times that a training thread waited for a decision")
                  .Register(r)),
        refused(prometheus::BuildCounter()
                    .Name("rewire_refused_cuts_total")
                    .Help("Proposed cuts that a member had already passed or did not answer")
                    .Register(r)),
        swaps(prometheus::BuildCounter()
                  .Name("rewire_swaps_total")
                  .Help("Swaps of a member to the next generation at a cut")
                  .Register(r)),
        writes(prometheus::BuildCounter()
                   .Name("rewire_store_writes_total")
                   .Help("Compare-and-swap operations of the store, by result")
                   .Register(r)),
        duration(prometheus::BuildHistogram()
                     .Name("rewire_transition_seconds")
                     .Help("Duration of transitions, by kind")
                     .Register(r)),
        pause(prometheus::BuildHistogram()
                  .Name("rewire_pause_seconds")
                  .Help("Pause of a training loop, per member and transition")
                  .Register(r)),
        write_seconds(prometheus::BuildHistogram()
                          .Name("rewire_store_write_seconds")
                          .Help("Duration of a compare-and-swap of the store")
                          .Register(r)) {
    for (const CounterInfo& info : CounterTable()) {
      if (info.kind == CounterKind::kGauge) {
        gauges[info.metric] =
            &prometheus::BuildGauge().Name(info.metric).Help(info.help).Register(r);
      } else {
        totals[info.metric] =
            &prometheus::BuildCounter().Name(info.metric).Help(info.help).Register(r);
      }
    }
  }
  // Both concern one row of counters.def for one member.
  void Show(MemberId member, const CounterInfo& info, uint64_t value) {
    const prometheus::Labels labels = LabelsOf(member, info);
    if (info.kind == CounterKind::kGauge) {
      gauges[info.metric]->Add(labels).Set(Shown(info, value));
    } else {
      Follow(totals[info.metric]->Add(labels), Shown(info, value));
    }
  }
  void Hide(MemberId member, const CounterInfo& info) {
    const prometheus::Labels labels = LabelsOf(member, info);
    if (info.kind == CounterKind::kGauge) {
      gauges[info.metric]->Remove(&gauges[info.metric]->Add(labels));
    } else {
      totals[info.metric]->Remove(&totals[info.metric]->Add(labels));
    }
  }

  Family<Gauge>&epoch, &members, &updates, &silent, &background, &stalled, &open, &uptime;
  Family<prometheus::Counter>&closed, &accepted, &dropped, &transitions, &requests, &bytes, &waits,
      &refused, &swaps, &writes;
  Family<Histogram>&duration, &pause, &write_seconds;
  // The members' counters, by metric.
  std::map<std::string_view, Family<Gauge>*> gauges;
  std::map<std::string_view, Family<prometheus::Counter>*> totals;
  std::set<MemberId> known;
};

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()), started_(Now()), progress_(started_) {
  families_ = std::make_unique<Families>(*registry_);
}

Metrics::~Metrics() = default;

void Metrics::OnTurn(const elastic::Leader& leader, Time now) {
  if (phase_ != leader.phase()) progress_ = now;
  phase_ = leader.phase();
}

void Metrics::Set(const elastic::Leader& leader, const Connections& connections, Time now) {
  Families& f = *families_;
  f.epoch.Add({}).Set(static_cast<double>(leader.record().world.epoch));
  f.uptime.Add({}).Set(Seconds(now - started_));
  f.background.Add({}).Set(static_cast<double>(leader.phase()));
  const bool idle = phase_ == elastic::Phase::kSteady || phase_ == elastic::Phase::kStopped;
  f.stalled.Add({}).Set(idle ? 0 : Seconds(now - progress_));
  std::set<MemberId> known;
  double training = 0;
  double joining = 0;
  double away = 0;
  for (const elastic::MemberStatus& m : leader.Members(now)) {
    (!m.connected ? away : m.slot ? training : joining) += 1;
    if (!m.connected) continue;
    const prometheus::Labels labels = {{"member", std::to_string(m.member)}};
    f.updates.Add(labels).Set(static_cast<double>(m.counts.updates));
    if (m.silent) f.silent.Add(labels).Set(Seconds(*m.silent));
    for (const CounterInfo& info : CounterTable()) {
      f.Show(m.member, info, ValueIn(m.counts.counters, info.counter));
    }
    known.insert(m.member);
  }
  for (const MemberId member : f.known) {
    if (known.count(member) != 0) continue;
    const prometheus::Labels labels = {{"member", std::to_string(member)}};
    f.updates.Remove(&f.updates.Add(labels));
    f.silent.Remove(&f.silent.Add(labels));
    for (const CounterInfo& info : CounterTable()) f.Hide(member, info);
  }
  f.known = known;
  f.members.Add({{"state", "training"}}).Set(training);
  f.members.Add({{"state", "joining"}}).Set(joining);
  f.members.Add({{"state", "away"}}).Set(away);
  const Connections::Counters& c = connections.counters();
  f.open.Add({}).Set(static_cast<double>(connections.size()));
  Follow(f.accepted.Add({}), static_cast<double>(c.accepted));
  Follow(f.closed.Add({{"reason", "garbage"}}), static_cast<double>(c.garbage));
  Follow(f.closed.Add({{"reason", "half_open"}}), static_cast<double>(c.half_open));
  Follow(f.closed.Add({{"reason", "slow"}}), static_cast<double>(c.slow));
  Follow(f.closed.Add({{"reason", "too_many"}}), static_cast<double>(c.refused));
  Follow(f.closed.Add({{"reason", "wrong_user"}}), static_cast<double>(c.wrong_user));
  Follow(f.dropped.Add({}), static_cast<double>(leader.dropped_messages()));
  Follow(f.refused.Add({}), static_cast<double>(leader.refused_rounds()));
  Follow(f.waits.Add({}), static_cast<double>(leader.host_waits()));
}

void Metrics::SetDroppedClients(uint64_t count) {
  Follow(families_->closed.Add({{"reason", "metrics"}}), static_cast<double>(count));
}

void Metrics::OnTransition(const TransitionEntry& entry) {
  Families& f = *families_;
  const std::string kind(KindName(entry.kind));
  f.transitions.Add({{"kind", kind}, {"result", entry.committed ? "committed" : "aborted"}})
      .Increment();
  if (!entry.committed) return;
  f.duration.Add({{"kind", kind}}, kSeconds).Observe(Seconds(*entry.end - entry.begin));
  for (const auto& [member, part] : entry.parts) {
    f.pause.Add({{"kind", kind}}, kSeconds).Observe(static_cast<double>(part.pause_ns) / 1e9);
    f.bytes.Add({}).Increment(static_cast<double>(part.bytes_in));
    if (entry.kind == elastic::TransitionKind::kSwap) f.swaps.Add({}).Increment();
  }
}

void Metrics::OnStoreWrite(Duration took, bool ok) {
  families_->writes.Add({{"result", ok ? "ok" : "failed"}}).Increment();
  families_->write_seconds.Add({}, kSeconds).Observe(Seconds(took));
}

void Metrics::OnRequest(const std::string& command, bool accepted) {
  families_->requests.Add({{"command", command}, {"result", accepted ? "accepted" : "refused"}})
      .Increment();
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace rewire::control
