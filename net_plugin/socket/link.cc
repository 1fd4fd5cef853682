#include "net_plugin/socket/link.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace rewire::net {
namespace {

enum class UseEnd { kGone, kPeerNotYet, kBoth };

// Tells whether the peer has also finished this use of a local sender's link (kFinished).
UseEnd EndOfUse(Link* link) {
  for (Stream& s : link->streams) {
    if (&s == link->streams.data()) {
      FrameHeader header;
      const absl::StatusOr<bool> headed = s.ReadHeader(&header);
      if (!headed.ok()) return UseEnd::kGone;
      if (*headed) {
        if (link->peer_finished || header.kind != FrameKind::kFinished || header.use != link->use) {
          return UseEnd::kGone;
        }
        link->peer_finished = true;
      }
      continue;
    }
    char byte = 0;
    const ssize_t n = recv(s.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return UseEnd::kGone;
  }
  return link->peer_finished ? UseEnd::kBoth : UseEnd::kPeerNotYet;
}

}  // namespace

IdleLinks::IdleLinks(size_t most, KeyOf key_of, Opened opened)
    : most_(most),
      key_of_(std::move(key_of)),
      opened_(std::move(opened)),
      events_(epoll_create1(EPOLL_CLOEXEC)) {}

bool IdleLinks::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void IdleLinks::Unwatch(int fd) { epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void IdleLinks::KeepSending(std::unique_ptr<Link> link) {
  const size_t streams = link->streams.size();
  while (!sending_.empty() && (sending_.size() + 1) * streams > most_) {
    sending_.pop_front();
  }
  sending_.push_back(std::move(link));
}

void IdleLinks::KeepReceiving(std::unique_ptr<Link> link) {
  if ((receiving_.size() + 1) * link->streams.size() > most_) return;
  const int fd = link->streams[0].fd();
  // Before the finished frame: the peer may use the link again once it has the frame.
  if (!Watch(fd)) return;
  FrameHeader finished;
  finished.kind = FrameKind::kFinished;
  finished.use = link->use;
  // The receiver sends hardly anything else, so the send buffer has room.
  const absl::StatusOr<size_t> said =
      link->streams[0].Write(&finished, sizeof finished, nullptr, 0);
  const bool written = said.ok() && *said == sizeof finished;
  // Frames that have already been read from the socket cause no event.
  if (written && Wake(&link)) {
    receiving_.emplace(fd, std::move(link));
  } else if (link != nullptr) {
    Unwatch(fd);
  }
}

std::unique_ptr<Link> IdleLinks::TakeSending(uint64_t peer, uint64_t rail, size_t streams) {
  for (auto at = sending_.begin(); at != sending_.end(); ++at) {
    Link& link = **at;
    if (link.peer != peer || link.rail != rail || link.streams.size() != streams) continue;
    if (EndOfUse(&link) != UseEnd::kBoth) continue;
    link.peer_finished = false;
    std::unique_ptr<Link> taken = std::move(*at);
    sending_.erase(at);
    return taken;
  }
  return nullptr;
}

void IdleLinks::Pump() {
  epoll_event events[64];
  int n = 64;
  while (n == 64) {
    n = epoll_wait(events_.get(), events, 64, 0);
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      const auto r = receiving_.find(fd);
      if (r == receiving_.end() || Wake(&r->second)) continue;
      if (r->second != nullptr) Unwatch(fd);
      receiving_.erase(r);
    }
  }
}

void IdleLinks::DropEnded() {
  std::erase_if(sending_, [](const auto& link) { return EndOfUse(link.get()) == UseEnd::kGone; });
}

void IdleLinks::Clear() {
  sending_.clear();
  for (const auto& [number, link] : receiving_) Unwatch(number);
  receiving_.clear();
}

bool IdleLinks::Wake(std::unique_ptr<Link>* link) {
  Link& l = **link;
  for (;;) {
    FrameHeader header;
    const absl::StatusOr<bool> headed = l.streams[0].ReadHeader(&header);
    if (!headed.ok()) return false;
    if (!*headed) return true;
    if (header.kind == FrameKind::kClose && header.use == l.use && !l.closed) {
      l.closed = true;
      continue;
    }
    if (header.kind != FrameKind::kOpen || !l.closed || header.use != l.use + 1) return false;
    const std::optional<Key> key = key_of_(header.sequence);
    if (!key || !IsOpenTag(header.total, *key, l.id, header.use)) return false;
    l.closed = false;
    ++l.use;
    Unwatch(l.streams[0].fd());
    opened_(header.sequence, std::move(*link));
    return false;
  }
}

}  // namespace rewire::net
