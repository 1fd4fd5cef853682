// Builds the entries of transitions; see transition_log.h. Owned by the agent's thread.
#include "reconfig/control/agent/transition_log.h"

namespace rewire::control {
namespace {

// Returns the target epoch of the transition that a message belongs to, if the message has one.
std::optional<Epoch> TargetOf(const elastic::Message& message) {
  return std::visit(
      [](const auto& m) -> std::optional<Epoch> {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, elastic::Commit>) {
          return m.record.world.epoch;
        } else if constexpr (!std::is_same_v<T, elastic::Lost> && requires { m.epoch; }) {
          return m.epoch;
        } else {
          return std::nullopt;
        }
      },
      message);
}

std::vector<MemberId> Ids(const World& world) {
  std::vector<MemberId> out;
  for (const WorldMember& m : world.members) out.push_back(m.member);
  return out;
}

}  // namespace

std::string_view KindName(elastic::TransitionKind kind) {
  switch (kind) {
    case elastic::TransitionKind::kSwap:
      return "swap";
    case elastic::TransitionKind::kBoundary:
      return "boundary";
    case elastic::TransitionKind::kLoss:
      return "loss";
  }
  return "unknown";
}

TransitionSpan* TransitionEntry::Open(std::optional<MemberId> member, std::string_view name) {
  for (auto it = spans.rbegin(); it != spans.rend(); ++it) {
    if (!it->end && it->member == member && (name.empty() || it->name == name)) return &*it;
  }
  return nullptr;
}

std::map<MemberId, std::string> TransitionEntry::WaitingFor() const {
  std::map<MemberId, std::string> out;
  for (const TransitionSpan& s : spans) {
    if (s.member && !s.end) out[*s.member] = s.name;
  }
  return out;
}

TransitionEntry* TransitionLog::Running() {
  return entries_.empty() || entries_.back().end ? nullptr : &entries_.back();
}

const TransitionEntry* TransitionLog::current() const {
  return entries_.empty() || entries_.back().end ? nullptr : &entries_.back();
}

const TransitionEntry* TransitionLog::Find(std::optional<Epoch> epoch) const {
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (epoch ? it->to == *epoch : it->end || it->committed) return &*it;
  }
  return nullptr;
}

void TransitionLog::Begin(Time now, std::optional<MemberId> member, std::string_view name) {
  End(now, member, name);
  Running()->spans.push_back({member, std::string(name), now, std::nullopt});
}

void TransitionLog::End(Time now, std::optional<MemberId> member, std::string_view name) {
  if (TransitionSpan* span = Running()->Open(member, name)) span->end = now;
}

void TransitionLog::OnSent(Time now, MemberId member, const elastic::Message& message) {
  TransitionEntry* entry = Running();
  if (entry == nullptr) return;
  if (std::holds_alternative<elastic::Retire>(message) && entry->committed)
    Begin(now, member, "retire");
  if (TargetOf(message) != entry->to) return;
  if (const auto* m = std::get_if<elastic::Prepare>(&message)) {
    entry->members_before = Ids(m->from);
    entry->members_after = Ids(m->to);
    Begin(now, member, "prepare");
  } else if (std::holds_alternative<elastic::Build>(message)) {
    Begin(now, member, "build");
  } else if (const auto* p = std::get_if<elastic::Propose>(&message)) {
    if (p->round != elastic::kLookRound) Begin(now, member, "pledge");
  } else if (const auto* d = std::get_if<elastic::Decide>(&message)) {
    if (d->go)
      Begin(now, member, entry->kind == elastic::TransitionKind::kSwap ? "to cut" : "to boundary");
  } else if (std::holds_alternative<elastic::Restore>(message)) {
    Begin(now, member, "restore");
  } else if (const auto* c = std::get_if<elastic::Commit>(&message)) {
    entry->committed = true;
    entry->members_after = Ids(c->record.world);
    // A joiner stands at the boundary before it is told to go there.
    End(now, member, "to boundary");
    if (c->record.world.SlotOf(member)) Begin(now, member, "enter");
  }
}

void TransitionLog::OnReceived(Time now, MemberId member, const elastic::Message& message) {
  if (const auto* p = std::get_if<elastic::Position>(&message)) return OnPosition(now, member, *p);
  TransitionEntry* entry = Running();
  if (entry == nullptr || TargetOf(message) != entry->to) return;
  TransitionEntry::Part& part = entry->parts[member];
  if (std::holds_alternative<elastic::Prepared>(message)) {
    End(now, member, "build");
    End(now, member, "prepare");
  } else if (std::holds_alternative<elastic::Pledge>(message)) {
    End(now, member, "pledge");
  } else if (std::holds_alternative<elastic::AtBoundary>(message)) {
    End(now, member, "to boundary");
    Begin(now, member, "stream");
  } else if (const auto* v = std::get_if<elastic::Verified>(&message)) {
    End(now, member, "restore");
    End(now, member, "stream");
    part.bytes_in = v->bytes_in;
    part.bytes_out = v->bytes_out;
  } else if (const auto* e = std::get_if<elastic::Entered>(&message)) {
    End(now, member, "enter");
    End(now, member, "to cut");
    part.pause_ns = e->pause_ns;
    if (e->pause_ns > 0) {
      entry->spans.push_back(
          {member, "pause", now - nanoseconds(static_cast<int64_t>(e->pause_ns)), now});
    }
  }
}

void TransitionLog::OnPosition(Time now, MemberId member, const elastic::Position& position) {
  for (TransitionEntry& entry : entries_) {
    if (position.in_use != entry.to || !position.open) continue;
    entry.parts[member].host_waits[position.communicator] = position.host_waits;
  }
  if (Running() != nullptr && position.old.empty()) End(now, member, "retire");
}

void TransitionLog::Close(Time now, TransitionEntry* entry) {
  entry->end = now;
  for (TransitionSpan& s : entry->spans) {
    if (!s.end) s.end = now;
  }
  ended_.push_back(*entry);
}

void TransitionLog::OnIdle(Time now) {
  if (TransitionEntry* entry = Running()) Close(now, entry);
}

void TransitionLog::OnNote(Time now, const elastic::Note& note, Epoch current) {
  if (note.transition == 0) return;
  TransitionEntry* entry = Running();
  if (entry != nullptr && entry->number != note.transition) {
    // The next transition follows at once. If the preparation began again, the last report says
    // why.
    if (!entry->committed) entry->result = entry->progress;
    Close(now, entry);
    entry = nullptr;
  }
  if (entry == nullptr) {
    // A note of a transition that has ended already.
    if (!entries_.empty() && entries_.back().number >= note.transition) return;
    entries_.emplace_back();
    if (entries_.size() > kKept) entries_.pop_front();
    entry = &entries_.back();
    entry->number = note.transition;
    entry->begin = now - note.elapsed;
    entry->from = current;
  }
  entry->kind = note.transition_kind;
  if (note.epoch != 0) entry->to = note.epoch;
  if (note.kind == elastic::NoteKind::kFailed) {
    entry->result = note.text;
    return Close(now, entry);
  }
  if (note.kind == elastic::NoteKind::kDone) {
    entry->committed = true;
    entry->entered = now;
    entry->summary = note.text;
    return;
  }
  if (note.kind != elastic::NoteKind::kProgress) return;
  entry->progress = note.text;
  if (note.phase == entry->phase) return;
  if (TransitionSpan* open = entry->Open(std::nullopt, "")) open->end = now;
  entry->phase = note.phase;
  entry->spans.push_back(
      {std::nullopt, std::string(elastic::PhaseName(note.phase)), now, std::nullopt});
}

}  // namespace rewire::control
