// The fields of every message in wire order: one list that both the writer and the reader of
// codec.cc walk, so that they cannot disagree. Included by codec.cc alone.
#pragma once

#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic::wire {

inline constexpr size_t kMaxAddress = 256;
inline constexpr size_t kMaxReason = 4096;

// An archive has Number(integer or bool), Secret(key), Text(string, limit), List(vector) and
// Ranks(vector, size of the communicator).
template <typename A>
void Fields(A& a, CommunicatorId& m) {
  a.Number(m.high);
  a.Number(m.low);
}
template <typename A>
void Fields(A& a, WorldMember& m) {
  a.Number(m.member);
  a.Number(m.incarnation);
  a.Text(m.data_address, kMaxAddress);
}
template <typename A>
void Fields(A& a, World& m) {
  a.Number(m.epoch);
  a.List(m.members);
}
template <typename A>
void Fields(A& a, Cut& m) {
  Fields(a, m.communicator);
  a.Number(m.warm);
  a.Number(m.cut);
}
template <typename A>
void Fields(A& a, WorldRecord& m) {
  Fields(a, m.world);
  a.List(m.cuts);
  a.Secret(m.secret);
  a.Number(m.revision);
  a.Number(m.reserved_epoch);
  a.Number(m.next_member);
}
template <typename A>
void Fields(A& a, CommunicatorBuild& m) {
  Fields(a, m.communicator);
  a.Number(m.ranks);
  a.Ranks(m.held, m.ranks);
  a.Text(m.unique_id, kMaxUniqueIdBytes);
  a.Number(m.grouped);
}
template <typename A>
void Fields(A& a, CommunicatorCounter& m) {
  Fields(a, m.communicator);
  a.Number(m.issued);
}
template <typename A>
void Fields(A& a, GenerationId& m) {
  a.Number(m.epoch);
  Fields(a, m.communicator);
}
template <typename A>
void Fields(A& a, PendingSwap& m) {
  a.Number(m.epoch);
  a.Number(m.warm);
  a.Number(m.cut);
}
// The elements of lists of numbers.
template <typename A>
void Fields(A& a, uint64_t& m) {
  a.Number(m);
}
template <typename A>
void Fields(A& a, uint32_t& m) {
  a.Number(m);
}

template <typename A>
void Fields(A& a, Hello& m) {
  a.Number(m.member);
  a.Number(m.incarnation);
  a.Number(m.pid);
  a.Number(m.cooperates);
  a.Text(m.data_address, kMaxAddress);
  a.Number(m.broken);
  a.Number(m.epoch);
  a.Number(m.positions);
  a.List(m.retiring);
}
template <typename A>
void Fields(A& a, CommunicatorCreated& m) {
  Fields(a, m.communicator);
  a.Number(m.ranks);
  a.Ranks(m.held, m.ranks);
  a.Number(m.pinned);
  a.Text(m.reason, kMaxReason);
  a.Text(m.group, kMaxGroupBytes);
  a.Number(m.creation);
}
template <typename A>
void Fields(A& a, CommunicatorDestroyed& m) {
  Fields(a, m.communicator);
}
template <typename A>
void Fields(A& a, CommunicatorPinned& m) {
  Fields(a, m.communicator);
  a.Text(m.reason, kMaxReason);
}
template <typename A>
void Fields(A& a, Minted& m) {
  a.Number(m.epoch);
  Fields(a, m.communicator);
  a.Text(m.unique_id, kMaxUniqueIdBytes);
  a.List(m.slots);
}
template <typename A>
void Fields(A& a, Prepared& m) {
  a.Number(m.epoch);
  a.Number(m.ok);
  a.Text(m.error, kMaxReason);
  a.Number(m.plan_hash);
  a.List(m.counters);
  a.Number(m.again);
}
template <typename A>
void Fields(A& a, Pledge& m) {
  a.Number(m.epoch);
  a.Number(m.round);
  a.Number(m.ok);
  Fields(a, m.communicator);
  a.Text(m.reason, kMaxReason);
  a.List(m.counters);
}
template <typename A>
void Fields(A& a, StateNeed& m) {
  a.List(m.live);
  a.List(m.whole);
  a.List(m.pieces);
}
template <typename A>
void Fields(A& a, AtBoundary& m) {
  a.Number(m.epoch);
  a.Number(m.live_version);
  a.Number(m.live_whole);
  a.List(m.own_snapshots);
  a.List(m.buddy_snapshots);
  a.List(m.needs);
}
template <typename A>
void Fields(A& a, Verified& m) {
  a.Number(m.epoch);
  a.Number(m.ok);
  a.Text(m.error, kMaxReason);
  a.Number(m.bytes_in);
  a.Number(m.bytes_out);
}
template <typename A>
void Fields(A& a, Entered& m) {
  a.Number(m.epoch);
  a.Number(m.pause_ns);
}
template <typename A>
void Fields(A& a, Position& m) {
  Fields(a, m.communicator);
  a.Number(m.open);
  a.Number(m.in_use);
  a.Number(m.point_to_point);
  a.Number(m.host_waits);
  a.List(m.pending);
  a.List(m.old);
}
template <typename A>
void Fields(A& a, CounterValue& m) {
  a.Number(m.number);
  a.Number(m.value);
}
template <typename A>
void Fields(A& a, Heartbeat& m) {
  a.Number(m.updates);
  a.List(m.counters);
}
template <typename A>
void Fields(A& a, ReclaimNotice& m) {
  a.Number(m.within_ms);
}
template <typename A>
void Fields(A&, Finished&) {}
template <typename A>
void Fields(A&, Witness&) {}
template <typename A>
void Fields(A& a, Welcome& m) {
  Fields(a, m.world);
  a.Number(m.joining);
  a.Secret(m.names_key);
  a.List(m.leaving);
}
template <typename A>
void Fields(A& a, Forming& m) {
  a.Number(m.missing);
}
template <typename A>
void Fields(A& a, Refused& m) {
  a.Text(m.reason, kMaxReason);
}
template <typename A>
void Fields(A& a, Prepare& m) {
  a.Number(m.epoch);
  a.Number(m.kind);
  Fields(a, m.from);
  Fields(a, m.to);
  a.Secret(m.secret);
  a.Number(m.deadline_ms);
  a.List(m.mint);
}
template <typename A>
void Fields(A& a, Build& m) {
  a.Number(m.epoch);
  a.List(m.builds);
}
template <typename A>
void Fields(A& a, Propose& m) {
  a.Number(m.epoch);
  a.Number(m.round);
  a.List(m.cuts);
}
template <typename A>
void Fields(A& a, Decide& m) {
  a.Number(m.epoch);
  a.Number(m.round);
  a.Number(m.go);
}
template <typename A>
void Fields(A& a, Restore& m) {
  a.Number(m.epoch);
  a.Number(m.version);
  a.List(m.sources.live);
  a.List(m.sources.own);
  a.List(m.sources.buddy);
}
template <typename A>
void Fields(A& a, Commit& m) {
  Fields(a, m.record);
}
template <typename A>
void Fields(A& a, Abort& m) {
  a.Number(m.epoch);
  a.Text(m.reason, kMaxReason);
}
template <typename A>
void Fields(A& a, Lost& m) {
  a.Number(m.epoch);
  a.List(m.members);
}
template <typename A>
void Fields(A& a, Stop& m) {
  a.Text(m.reason, kMaxReason);
}
template <typename A>
void Fields(A& a, Retire& m) {
  a.List(m.generations);
}

}  // namespace rewire::elastic::wire
