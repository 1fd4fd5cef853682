// Accepts, reads, writes and closes connections; see connections.h. Owned by the agent's thread.
#include "reconfig/control/agent/connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include "reconfig/base/listening_socket.h"
#include "reconfig/base/log.h"

namespace rewire::control {
namespace {

// The maximum number of accepts in one turn of the event loop.
constexpr int kMostAccepts = 256;

// Logs the first event of a kind; a flood appears only in the counter.
void LogFirst(uint64_t count, const std::string& text) {
  if (count == 1) {
    REWIRE_WARN("agent: %s (further ones are counted, not logged)", text.c_str());
  } else {
    REWIRE_DEBUG("%s", text.c_str());
  }
}

}  // namespace

Connections::Connections(UniqueFd listener, Options options, Events* events)
    : listener_(std::move(listener)), options_(options), events_(events) {}

void Connections::Watch(Time now, PollSet* turn) {
  listener_.Watch(now, turn);
  for (const auto& [id, c] : open_) {
    turn->Add(c->socket.fd(), (c->leaving ? 0 : POLLIN) | (c->socket.WantsWrite() ? POLLOUT : 0));
    turn->Until(c->deadline);
    // A connection that died during another connection's event is swept at once.
    if (!c->dead.empty() || (c->leaving && !c->socket.WantsWrite())) turn->Until(now);
  }
}

void Connections::Handle(Time now, const PollSet& turn) {
  // Connections open and close while events are handled, so the readable ones are found first.
  std::vector<Id> readable;
  for (const auto& [id, c] : open_) {
    const int ready = turn.Ready(c->socket.fd());
    if ((ready & POLLOUT) != 0) Write(c.get());
    if ((ready & ~POLLOUT) != 0) readable.push_back(id);
  }
  for (const Id id : readable) ReadNow(id);
  if (turn.Ready(listener_.fd()) != 0) AcceptAll(now);
  Sweep(now);
}

void Connections::ReadNow(Id id) {
  const auto found = open_.find(id);
  if (found != open_.end()) Read(id, found->second.get());
}

void Connections::ReadAll() {
  std::vector<Id> ids;
  for (const auto& [id, c] : open_) ids.push_back(id);
  for (const Id id : ids) ReadNow(id);
}

void Connections::AcceptAll(Time now) {
  for (int turn = 0; turn < kMostAccepts; ++turn) {
    UniqueFd fd = listener_.Accept(now);
    if (!fd.valid()) {
      if (!listener_.paused_until() || !DropSilent(0)) return;
      Sweep(now);
      listener_.Resume();
      continue;
    }
    ++counters_.accepted;
    PeerCredentials peer;
    if (!PeerOf(fd.get(), &peer).ok() || (peer.uid != geteuid() && peer.uid != 0)) {
      LogFirst(++counters_.wrong_user, "close connection of process " + std::to_string(peer.pid) +
                                           ": uid=" + std::to_string(peer.uid) + ": must be " +
                                           std::to_string(geteuid()) + " or 0");
      continue;
    }
    if (open_.size() >= options_.max_connections) {
      LogFirst(++counters_.refused, "refuse connection of process " + std::to_string(peer.pid) +
                                        ": at most " + std::to_string(options_.max_connections) +
                                        " connections may be open");
      continue;
    }
    auto c = std::make_unique<Connection>();
    c->socket = FramedSocket(std::move(fd), kFrameLimit, options_.max_queue);
    c->peer = peer;
    c->since = Now();
    c->deadline = now + options_.first_frame;
    Connection* const added = c.get();
    const Id id = next_++;
    open_[id] = std::move(c);
    Read(id, added);  // the first frame has usually arrived already
    DropSilent(options_.max_silent);
  }
}

bool Connections::DropSilent(size_t above) {
  std::vector<PendingConnection> silent;
  std::vector<Connection*> at;
  for (const auto& [id, c] : open_) {
    if (c->spoke || !c->dead.empty()) continue;
    silent.push_back({static_cast<uint64_t>(c->peer.pid), c->since});
    at.push_back(c.get());
  }
  if (silent.size() <= above) return false;
  Connection* const dropped = at[PendingConnectionToDrop(silent)];
  dropped->dead = "too many connections have sent no message";
  LogFirst(++counters_.refused, "close connection of process " + std::to_string(dropped->peer.pid) +
                                    ": too many connections have sent no message");
  return true;
}

void Connections::Read(Id id, Connection* c) {
  if (!c->dead.empty()) return;
  const SocketStatus read = c->socket.ReadReady();
  SocketStatus bad;
  while (c->dead.empty() && !c->leaving) {
    const std::optional<std::string> frame = c->socket.Next(&bad);
    if (!frame) break;
    c->deadline.reset();
    c->spoke = true;
    events_->OnFrame(id, *frame);
  }
  if (!bad.ok()) CloseForGarbage(id, bad.text);
  if (!read.ok() && c->dead.empty()) c->dead = read.text;
}

void Connections::Write(Connection* c) {
  if (!c->dead.empty()) return;
  if (const SocketStatus s = c->socket.Flush(); !s.ok()) c->dead = s.text;
}

void Connections::FlushAll() {
  for (const auto& [id, c] : open_) {
    if (c->socket.WantsWrite()) Write(c.get());
  }
}

void Connections::Send(Id id, std::string_view frame) {
  const auto found = open_.find(id);
  if (found == open_.end() || !found->second->dead.empty()) return;
  if (const SocketStatus s = found->second->socket.Queue(frame); !s.ok()) {
    LogFirst(++counters_.slow, "close connection of process " +
                                   std::to_string(found->second->peer.pid) + ": " + s.text);
    found->second->dead = s.text;
  }
}

void Connections::Close(Id id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  found->second->silent = true;
  if (found->second->dead.empty()) found->second->dead = "closed";
}

void Connections::CloseAfterWriting(Time now, Id id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  found->second->leaving = true;
  found->second->silent = true;
  found->second->deadline = now + options_.first_frame;
}

void Connections::CloseForGarbage(Id id, const std::string& what) {
  const auto found = open_.find(id);
  if (found == open_.end() || !found->second->dead.empty()) return;
  LogFirst(++counters_.garbage,
           "close connection of process " + std::to_string(found->second->peer.pid) + ": " + what);
  found->second->dead = what;
}

void Connections::CloseAfterReading(Id id, const std::string& why) {
  ReadNow(id);
  const auto found = open_.find(id);
  if (found != open_.end() && found->second->dead.empty()) found->second->dead = why;
}

void Connections::Sweep(Time now) {
  std::vector<std::pair<Id, std::string>> closed;
  for (auto it = open_.begin(); it != open_.end();) {
    Connection& c = *it->second;
    if (c.dead.empty() && c.leaving && !c.socket.WantsWrite()) c.dead = "closed";
    if (c.dead.empty() && c.deadline && now >= *c.deadline) {
      c.dead = c.leaving ? "the last message was not read in time" : "no message arrived in time";
      if (!c.leaving) {
        LogFirst(++counters_.half_open, "close connection of process " +
                                            std::to_string(c.peer.pid) +
                                            ": no message arrived in time");
      }
    }
    if (c.dead.empty()) {
      ++it;
      continue;
    }
    if (!c.silent) closed.emplace_back(it->first, c.dead);
    it = open_.erase(it);
  }
  for (const auto& [id, why] : closed) events_->OnClosed(id, why);
}

bool Connections::IsOpen(Id id) const {
  const auto found = open_.find(id);
  return found != open_.end() && found->second->dead.empty();
}

pid_t Connections::PidOf(Id id) const {
  const auto found = open_.find(id);
  return found == open_.end() ? 0 : found->second->peer.pid;
}

}  // namespace rewire::control
