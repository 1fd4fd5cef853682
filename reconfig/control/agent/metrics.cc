#include "reconfig/control/agent/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <set>
#include <vector>

namespace rewire {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSeconds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                              1,     3,     10,   30,   100, 300};

double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// Raises a counter to a value that is counted elsewhere.
void Follow(Counter& counter, uint64_t value) {
  counter.Increment(std::max(0.0, static_cast<double>(value) - counter.Value()));
}

// Counters of a member's net plugin.
constexpr struct {
  const char* name;
  const char* help;
  uint64_t NetCounts::*count;
} kNet[] = {
    {"rewire_net_links_made_total", "TCP links that connections of NCCL established",
     &NetCounts::links_made},
    {"rewire_net_links_reused_total", "Connections of NCCL that reused an idle link",
     &NetCounts::links_reused},
    {"rewire_net_strangers_total", "Unauthenticated connections that the net plugin refused",
     &NetCounts::unauthenticated},
    {"rewire_net_rails_failed_total", "RDMA rails that failed after they were up",
     &NetCounts::rails_failed},
    {"rewire_net_rails_back_total", "Failed RDMA rails that are up again", &NetCounts::rails_back},
};

// Counters of expert balancing in a member's process.
constexpr struct {
  const char* name;
  const char* help;
  uint64_t MoeCounts::*count;
} kMoe[] = {
    {"rewire_moe_rounds_total",
     "Rounds of expert balancing: a layer of a micro-batch, forward or backward",
     &MoeCounts::rounds},
    {"rewire_moe_moves_total", "Moves of this member's experts to other members",
     &MoeCounts::moves},
    {"rewire_moe_copied_bytes_total",
     "Bytes copied between devices for moved experts, in both directions",
     &MoeCounts::copied_bytes},
    {"rewire_moe_late_rounds_total", "Rounds in which copies completed too late",
     &MoeCounts::late_rounds},
};
constexpr struct {
  const char* reason;
  uint64_t MoeCounts::*count;
} kMoeOff[] = {{"late", &MoeCounts::off_late},
               {"copies_fail", &MoeCounts::off_copies},
               {"broken", &MoeCounts::off_broken}};

prometheus::Labels With(prometheus::Labels labels, const char* name, const char* value) {
  labels.emplace(name, value);
  return labels;
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
        stalled(prometheus::BuildGauge()
                    .Name("rewire_transition_progress_age_seconds")
                    .Help("Time since the current transition last made progress; 0: no transition")
                    .Register(r)),
        open(prometheus::BuildGauge()
                 .Name("rewire_connections")
                 .Help("Open connections to the agent")
                 .Register(r)),
        moe_budget(prometheus::BuildGauge()
                       .Name("rewire_moe_budget_experts")
                       .Help("Limit of experts that a round may copy; 0: balancing is off")
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
        stream(
            prometheus::BuildCounter()
                .Name("rewire_stream_connections_refused_total")
                .Help(
                    "Refused connections to a member's data address or descriptor server: "
                    "timed out, above a limit, not authenticated, or for a stream that is not open")
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
        moe_off(prometheus::BuildCounter()
                    .Name("rewire_moe_off_total")
                    .Help("Number of times that expert balancing was turned off, by reason")
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
    for (const auto& n : kNet) {
      net.push_back(&prometheus::BuildCounter().Name(n.name).Help(n.help).Register(r));
    }
    for (const auto& m : kMoe) {
      moe.push_back(&prometheus::BuildCounter().Name(m.name).Help(m.help).Register(r));
    }
  }
  Family<Gauge>&epoch, &members, &updates, &silent, &background, &stalled, &open, &moe_budget,
      &uptime;
  Family<Counter>&closed, &accepted, &stream, &dropped, &transitions, &requests, &bytes, &waits,
      &refused, &swaps, &writes, &moe_off;
  Family<Histogram>&duration, &pause, &write_seconds;
  std::vector<Family<Counter>*> net;  // as in kNet
  std::vector<Family<Counter>*> moe;  // as in kMoe
  std::set<MemberId> known;
  Phase phase = Phase::kForming;
};

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()), started_(Now()), progress_(started_) {
  families_ = std::make_unique<Families>(*registry_);
}

Metrics::~Metrics() = default;

void Metrics::Set(const Leader& leader, const Connections& connections, Time now) {
  Families& f = *families_;
  f.epoch.Add({}).Set(static_cast<double>(leader.record().world.epoch));
  f.uptime.Add({}).Set(Seconds(now - started_));
  f.background.Add({}).Set(static_cast<double>(leader.phase()));
  if (f.phase != leader.phase()) progress_ = now;
  f.phase = leader.phase();
  const bool idle = f.phase == Phase::kSteady || f.phase == Phase::kStopped;
  f.stalled.Add({}).Set(idle ? 0 : Seconds(now - progress_));
  std::set<MemberId> known;
  double training = 0;
  double joining = 0;
  double away = 0;
  for (const MemberStatus& m : leader.Members(now)) {
    (!m.connected ? away : m.slot ? training : joining) += 1;
    if (!m.connected) continue;
    const prometheus::Labels labels = {{"member", std::to_string(m.member)}};
    f.updates.Add(labels).Set(static_cast<double>(m.counts.updates));
    f.silent.Add(labels).Set(Seconds(m.silent));
    for (size_t i = 0; i < f.net.size(); ++i) {
      Follow(f.net[i]->Add(labels), m.counts.net.*kNet[i].count);
    }
    for (size_t i = 0; i < f.moe.size(); ++i) {
      Follow(f.moe[i]->Add(labels), m.counts.moe.*kMoe[i].count);
    }
    Follow(f.stream.Add(labels), m.counts.connections_refused);
    f.moe_budget.Add(labels).Set(static_cast<double>(m.counts.moe.budget));
    for (const auto& off : kMoeOff) {
      Follow(f.moe_off.Add(With(labels, "reason", off.reason)), m.counts.moe.*off.count);
    }
    known.insert(m.member);
  }
  for (const MemberId member : f.known) {
    if (known.count(member) != 0) continue;
    const prometheus::Labels labels = {{"member", std::to_string(member)}};
    f.updates.Remove(&f.updates.Add(labels));
    f.silent.Remove(&f.silent.Add(labels));
    f.moe_budget.Remove(&f.moe_budget.Add(labels));
    f.stream.Remove(&f.stream.Add(labels));
    for (const auto* counters : {&f.net, &f.moe}) {
      for (Family<Counter>* counter : *counters) counter->Remove(&counter->Add(labels));
    }
    for (const auto& off : kMoeOff) {
      f.moe_off.Remove(&f.moe_off.Add(With(labels, "reason", off.reason)));
    }
  }
  f.known = known;
  f.members.Add({{"state", "training"}}).Set(training);
  f.members.Add({{"state", "joining"}}).Set(joining);
  f.members.Add({{"state", "away"}}).Set(away);
  const Connections::Counters& c = connections.counters();
  f.open.Add({}).Set(static_cast<double>(connections.size()));
  Follow(f.accepted.Add({}), c.accepted);
  Follow(f.closed.Add({{"reason", "garbage"}}), c.garbage);
  Follow(f.closed.Add({{"reason", "half_open"}}), c.half_open);
  Follow(f.closed.Add({{"reason", "slow"}}), c.slow);
  Follow(f.closed.Add({{"reason", "too_many"}}), c.refused);
  Follow(f.closed.Add({{"reason", "wrong_user"}}), c.wrong_user);
  Follow(f.dropped.Add({}), leader.dropped_messages());
  Follow(f.refused.Add({}), leader.refused_rounds());
  Follow(f.waits.Add({}), leader.host_waits());
}

void Metrics::SetDroppedClients(uint64_t count) {
  Follow(families_->closed.Add({{"reason", "metrics"}}), count);
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
    if (entry.kind == TransitionKind::kSwap) f.swaps.Add({}).Increment();
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

}  // namespace rewire
