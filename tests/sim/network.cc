// The simulated network and the communication between the processes. See simulation.h.
#include "absl/strings/str_cat.h"
#include "reconfig/elastic/protocol/codec.h"
#include "tests/sim/simulation.h"

namespace rewire::sim {

Duration Simulation::Latency() {
  if (faults_ && random_.OneIn(200)) return milliseconds(random_.Below(400));
  return random_.Between(microseconds(20), milliseconds(2));
}

void Simulation::Connect(Process* process) {
  if (!process->alive() || process->connection_ != 0) return;
  if (!leader_) {
    After(milliseconds(20), [this, process] { Connect(process); });
    return;
  }
  const int number = next_connection_++;
  Connection& connection = connections_[number];
  connection.member = process->id();
  connection.up = connection.down = now();
  process->connection_ = number;
  process->Connected();
}

void Simulation::ToLeader(Process* from, const elastic::Message& message) {
  const int number = from->connection_;
  const auto it = connections_.find(number);
  if (it == connections_.end() || !it->second.open) return;
  it->second.up = std::max(it->second.up, now() + Latency());
  // Every message uses the wire format, as in production.
  const std::string frame = *elastic::Encode(message);
  At(it->second.up, [this, number, frame, life = leader_life_] {
    const auto at = connections_.find(number);
    if (life != leader_life_ || at == connections_.end()) return;
    LeaderHears(number, *elastic::Decode(frame));
  });
}

void Simulation::LeaderHears(int number, const elastic::Message& message) {
  Connection& connection = connections_[number];
  const MemberId member = connection.member;
  ledger_.Log(7, message.index() ^ (uint64_t{member} << 32));
  if (const auto* hello = std::get_if<elastic::Hello>(&message)) {
    connection.known = true;
    const auto before = connection_of_.find(member);
    const int replaced = before == connection_of_.end() ? number : before->second;
    connection_of_[member] = number;
    RunLeader([this, hello = *hello](auto* out) { leader_->OnConnect(now(), hello, out); });
    // As the agent does: a member has one connection. Hellos of two may arrive in either order.
    if (replaced != number) Break(replaced, false, true);
    if (!connections_[number].open) LeaderLoses(number, now());
    return;
  }
  if (!connection.known || connection_of_[member] != number) return;
  RunLeader([this, member, message](auto* out) {
    if (std::holds_alternative<elastic::ReclaimNotice>(message)) Drained(member);
    leader_->OnMessage(now(), member, message, out);
  });
}

void Simulation::ToMember(MemberId member, const elastic::Message& message) {
  const auto of = connection_of_.find(member);
  if (of == connection_of_.end()) return;
  const int number = of->second;
  Connection& connection = connections_[number];
  if (!connection.open) return;
  connection.down = std::max(connection.down, now() + Latency());
  const std::string frame = *elastic::Encode(message);
  At(connection.down, [this, number, member, frame] {
    Process* process = Find(member);
    if (process == nullptr || process->connection_ != number) return;
    process->Receive(*elastic::Decode(frame));
  });
}

void Simulation::LeaderLoses(int number, Time last) {
  At(last + milliseconds(1), [this, number, life = leader_life_] {
    const MemberId member = connections_[number].member;
    const auto of = connection_of_.find(member);
    if (life != leader_life_ || of == connection_of_.end() || of->second != number) return;
    connection_of_.erase(of);
    RunLeader([this, member](auto* out) { leader_->OnDisconnect(now(), member, out); });
  });
}

void Simulation::Break(int number, bool in_flight, bool tell_process) {
  Connection& connection = connections_[number];
  if (!connection.open) return;
  connection.open = false;
  const MemberId member = connection.member;
  const Time up = in_flight ? connection.up : now();
  const Time down = in_flight ? connection.down : now();
  if (!in_flight) connection.known = false;  // messages on their way to the leader are lost
  if (connection_of_.contains(member) && connection_of_[member] == number) LeaderLoses(number, up);
  if (!tell_process) return;
  const auto ended = [this, number, member] {
    Process* process = Find(member);
    if (process == nullptr || process->connection_ != number) return;
    process->connection_ = 0;
    process->Disconnected();
    After(random_.Between(milliseconds(1), milliseconds(100)), [this, member] {
      if (Process* again = Find(member)) Connect(again);
    });
  };
  if (in_flight) {
    At(down + microseconds(1), ended);
  } else {
    ended();
  }
}

void Simulation::ProcessEnded(Process* process) {
  Print(absl::StrCat("process ", process->id(), " ended"));
  if (process->connection_ != 0) Break(process->connection_, true, false);
  // A process can die while it reconnects, before the leader has its Hello. The leader must still
  // notice the end of the process's last connection.
  const auto last = connection_of_.find(process->id());
  if (last == connection_of_.end() || last->second == process->connection_ || options_.plain) {
    return;
  }
  connections_[last->second].open = true;
  Break(last->second, false, false);
}

void Simulation::ProcessStopped(Process* process, const std::string& reason) {
  Print(absl::StrCat("process ", process->id(), " stops: ", reason));
  for (const char* broken : {"has not pledged", "has not verified", "without this member"}) {
    const bool outside = stored_ && !stored_->world.SlotOf(process->id());
    if (reason.find(broken) != std::string::npos && !outside) {
      ledger_.Violation(absl::StrCat("member ", process->id(), ": ", reason));
    }
  }
  const bool in_world =
      stored_ && stored_->world.SlotOf(process->id()) && !late_.contains(process->id());
  // A leader that ends the job may crash when only some members have been told.
  const bool job_ends = reason == leader_stops_ && MayEnd(reason);
  if (in_world && !job_stopped_ && !job_ends && !process->was_cut_off_ && !StateIsLost()) {
    ledger_.Violation(absl::StrCat("member ", process->id(), " stopped for no fault: ", reason));
  }
}

// ---- between processes --------------------------------------------------------------------------

void Simulation::Issued(Process* by, Epoch era, const CommunicatorId& c, uint64_t index,
                        const std::vector<WorldMember>& world) {
  const auto key = std::tuple(era, c, index);
  std::set<MemberId>& there = waiting_[key];
  there.insert(by->id());
  const std::vector<MemberId> span = SpanOf(c, by->id(), world);
  if (there.size() < span.size()) return;
  waiting_.erase(key);
  for (const MemberId id : span) {
    After(random_.Between(microseconds(10), microseconds(500)), [=, this] {
      if (Process* process = Find(id)) process->OperationDone(era, c, index);
    });
  }
}

void Simulation::CopyToBuddy(Process* from, Epoch era, const std::vector<WorldMember>& world,
                             uint64_t version) {
  size_t slot = 0;
  while (world[slot].member != from->id()) ++slot;
  const MemberId buddy = world[(slot + 1) % world.size()].member;
  const MemberId self = from->id();
  // On a busy host a copy takes longer than a step.
  const milliseconds most(more_random_.OneIn(4) ? 200 : 15);
  const Duration copy = random_.Between(milliseconds(1), most);
  After(copy, [=, this] {
    Process* source = Find(self);
    Process* target = Find(buddy);
    // A peer that is gone never answers; the next update then waits until the loss is handled.
    if (source == nullptr || target == nullptr) return;
    if (buddy != self) target->BuddyCopyArrived(era, version);
    source->BuddyCopyDone(era, version);
  });
}

bool Simulation::SourcesStand() const {
  if (!stored_) return false;
  for (const WorldMember& m : stored_->world.members) {
    Process* process = Find(m.member);
    if (process == nullptr || !process->standing()) return false;
  }
  return true;
}

uint64_t Simulation::SourceVersion() const {
  return Find(stored_->world.members[0].member)->version();
}

}  // namespace rewire::sim
