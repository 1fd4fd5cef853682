// Passes descriptors over a Unix socket; see descriptor_server.h.
#include "reconfig/state/stream/descriptor_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/log.h"
#include "reconfig/base/socket.h"

namespace rewire::state {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
// A node has fewer members than this limit.
constexpr size_t kMostClients = 64;

Counted refused{Counter::kStreamRefused};

void Refuse(const std::string& why) {
  if (++refused != 1) return;
  REWIRE_WARN(
      "descriptor server: a connection was refused: %s (further ones are counted, not logged)",
      why.c_str());
}

absl::Status Failed(const char* call) {
  return absl::UnavailableError(absl::StrCat(call, ": ", strerror(errno)));
}

// Makes an abstract address: its first byte is 0, and the address disappears with its socket.
socklen_t AddressOf(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof address->sun_path - 1);
  name.copy(address->sun_path + 1, size);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

union Control {
  cmsghdr align;
  char room[CMSG_SPACE(sizeof(int))];
};

bool SendAnswer(int client, int fd) {
  char answer = fd >= 0 ? 1 : 0;
  iovec bytes = {&answer, 1};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  Control control = {};
  if (fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.room;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
  }
  // Our clients wait for each answer before the next request, so their sockets have room for one.
  return sendmsg(client, &message, MSG_NOSIGNAL) == 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DescriptorServer>> DescriptorServer::Start(Make make,
                                                                          Duration idle) {
  uint64_t random[2] = {};
  if (getrandom(random, sizeof random, 0) != ssize_t{sizeof random}) return Failed("getrandom");
  const std::string name =
      absl::StrCat("rewire-", getpid(), "-", absl::Hex(random[0]), absl::Hex(random[1]));
  UniqueFd listener(socket(AF_UNIX, kSocketType, 0));
  sockaddr_un address;
  const socklen_t size = AddressOf(name, &address);
  if (!listener.valid() ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(listener.get(), kMostClients) != 0) {
    return Failed("start descriptor server");
  }
  std::unique_ptr<DescriptorServer> server(
      new DescriptorServer(std::move(make), idle, name, std::move(listener)));
  if (!server->stop_.valid()) return Failed("eventfd");
  server->thread_ = std::thread([s = server.get()] { s->Run(); });
  return server;
}

DescriptorServer::DescriptorServer(Make make, Duration idle, std::string name, UniqueFd listener)
    : make_(std::move(make)), idle_(idle), name_(std::move(name)), listener_(std::move(listener)) {}

DescriptorServer::~DescriptorServer() {
  stop_.Wake();
  if (thread_.joinable()) thread_.join();
}

void DescriptorServer::Run() {
  pthread_setname_np(pthread_self(), "rewire-share");
  for (;;) {
    PollSet turn;
    turn.Add(stop_.fd(), POLLIN);
    listener_.Watch(Now(), &turn);
    for (const Client& c : clients_) {
      turn.Add(c.fd.get(), POLLIN);
      turn.Until(c.heard + idle_);
    }
    turn.Wait();
    if (turn.Ready(stop_.fd()) != 0) return;
    // Only the next turn reports a request that arrives during a long answer.
    const Time now = Now();
    std::erase_if(clients_, [&](Client& c) {
      if (turn.Ready(c.fd.get()) == 0) return false;
      const bool answered = Answer(c.fd.get());
      c.heard = Now();
      return !answered;
    });
    DropIdle(now);
    if (turn.Ready(listener_.fd()) != 0) AcceptOne(now);
  }
}

void DescriptorServer::DropIdle(Time now) {
  const auto idle = [&](const Client& c) { return now >= c.heard + idle_; };
  // The clients are counted before they are closed: a closed client may read the counter at once.
  for (auto n = std::count_if(clients_.begin(), clients_.end(), idle); n > 0; --n) {
    Refuse("the client sent no request in time");
  }
  std::erase_if(clients_, idle);
}

void DescriptorServer::AcceptOne(Time now) {
  UniqueFd client = listener_.Accept(now);
  PeerCredentials peer;
  if (!client.valid() || !PeerOf(client.get(), &peer).ok()) return;
  // Other users of this node may see the name, but only this user's processes get memory.
  if (peer.uid != geteuid()) {
    return Refuse(absl::StrCat("uid=", peer.uid, ": must be ", geteuid()));
  }
  clients_.push_back({std::move(client), static_cast<uint64_t>(peer.pid), now});
  if (clients_.size() <= kMostClients) return;
  std::vector<PendingConnection> all;
  for (const Client& c : clients_) all.push_back({c.pid, c.heard});
  clients_.erase(clients_.begin() + static_cast<ptrdiff_t>(PendingConnectionToDrop(all)));
  Refuse("too many connections are open");
}

bool DescriptorServer::Answer(int client) {
  uint32_t index = 0;
  const ssize_t got = recv(client, &index, sizeof index, MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got != ssize_t{sizeof index}) return false;
  const UniqueFd fd = make_(index);
  return SendAnswer(client, fd.get());
}

absl::StatusOr<DescriptorClient> DescriptorClient::Connect(const std::string& name, Time deadline) {
  UniqueFd fd(socket(AF_UNIX, kSocketType, 0));
  if (!fd.valid()) return Failed("socket");
  sockaddr_un address;
  const socklen_t size = AddressOf(name, &address);
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    if (errno == EINTR) continue;
    // EAGAIN: the server's queue is full.
    if (errno != EAGAIN)
      return Failed(absl::StrCat("connect to descriptor server @", name).c_str());
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("connect to descriptor server @", name, ": its queue is full"));
    }
    poll(nullptr, 0, 1);
  }
  // Another user may have bound the name meanwhile.
  PeerCredentials peer;
  if (const SocketStatus s = PeerOf(fd.get(), &peer); !s.ok())
    return absl::UnavailableError(s.text);
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("connect to descriptor server @", name,
                                                    ": uid=", peer.uid, ": must be ", geteuid()));
  }
  return DescriptorClient(std::move(fd));
}

absl::StatusOr<UniqueFd> DescriptorClient::Ask(uint32_t index, Time deadline) {
  if (send(socket_.get(), &index, sizeof index, MSG_NOSIGNAL) != ssize_t{sizeof index}) {
    return Failed("request shared memory from another member");
  }
  if (!WaitReady(socket_.get(), POLLIN, deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("request shared memory from another member: index=", index, ": timed out"));
  }
  char answer = 0;
  iovec bytes = {&answer, 1};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control.room;
  if (recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC) != 1) {
    return Failed("receive shared memory from another member");
  }
  UniqueFd fd;
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
      head->cmsg_len == CMSG_LEN(sizeof(int))) {
    int raw = -1;
    memcpy(&raw, CMSG_DATA(head), sizeof raw);
    fd.reset(raw);
  }
  if (answer != 1 || !fd.valid()) {
    return absl::NotFoundError(absl::StrCat("request shared memory from another member: index=",
                                            index, ": the memory is no longer shared"));
  }
  return fd;
}

}  // namespace rewire::state
