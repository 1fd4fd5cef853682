// Serves /metrics; see metrics_server.h. Owned by the agent's thread.
#include "reconfig/control/agent/metrics_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "reconfig/base/socket.h"
#include "reconfig/base/status_macros.h"

namespace rewire::control {
namespace {

constexpr Duration kPatience = seconds(5);
constexpr size_t kMostClients = 16;
constexpr size_t kLongestRequest = 8192;

std::string WithHost(const std::string& address) {
  return address.find(':') == std::string::npos ? absl::StrCat("127.0.0.1:", address) : address;
}

std::string Response(const char* status, const std::string& body) {
  return absl::StrCat(
      "HTTP/1.1 ", status,
      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: ", body.size(),
      "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

absl::Status MetricsServer::CheckAddress(const std::string& address) {
  const std::string full = WithHost(address);
  const size_t colon = full.rfind(':');
  in_addr host{};
  uint16_t port = 0;
  const char* const end = full.data() + full.size();
  const auto parsed = std::from_chars(full.data() + colon + 1, end, port);
  if (full.rfind("127.", 0) == 0 && inet_pton(AF_INET, full.substr(0, colon).c_str(), &host) == 1 &&
      parsed.ec == std::errc() && parsed.ptr == end) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("metrics address '", address,
                   "': must be PORT or 127.0.0.1:PORT, with a port of 0 to 65535"));
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Listen(const std::string& address) {
  auto server = std::make_unique<MetricsServer>();
  if (address.empty()) return server;
  REWIRE_RETURN_IF_ERROR(CheckAddress(address));
  const std::string full = WithHost(address);
  std::string bound;
  UniqueFd fd;
  if (const SocketStatus s = ListenTcp(full, &fd, &bound); !s.ok()) {
    return absl::UnavailableError("metrics: " + s.text);
  }
  server->listener_ = ListeningSocket(std::move(fd));
  server->port_ = std::stoi(bound.substr(bound.rfind(':') + 1));
  return server;
}

void MetricsServer::Watch(Time now, PollSet* turn) {
  if (!listener_.valid()) return;
  listener_.Watch(now, turn);
  for (const Client& c : clients_) {
    turn->Add(c.fd.get(), c.answering ? POLLOUT : POLLIN);
    turn->Until(c.deadline);
  }
}

void MetricsServer::Handle(Time now, const PollSet& turn,
                           const std::function<std::string()>& text) {
  if (!listener_.valid()) return;
  clients_.remove_if([&](Client& c) {
    if (now >= c.deadline) ++dropped_;
    return now >= c.deadline || (turn.Ready(c.fd.get()) != 0 && !Serve(&c, text));
  });
  if (turn.Ready(listener_.fd()) != 0) AcceptAll(now, text);
}

void MetricsServer::AcceptAll(Time now, const std::function<std::string()>& text) {
  for (size_t turn = 0; turn < kMostClients; ++turn) {
    UniqueFd fd = listener_.Accept(now);
    if (!fd.valid()) {
      if (!listener_.paused_until() || clients_.empty()) return;
      listener_.Resume();
      clients_.pop_front();
      ++dropped_;
      continue;
    }
    Client client{std::move(fd), now + kPatience, "", "", false};
    // The request has usually arrived and the answer fits the socket, so that no wait is needed.
    if (!Serve(&client, text)) continue;
    clients_.push_back(std::move(client));
    if (clients_.size() <= kMostClients) continue;
    clients_.pop_front();
    ++dropped_;
  }
}

bool MetricsServer::Serve(Client* client, const std::function<std::string()>& text) {
  if (!client->answering) {
    char chunk[2048];
    const ssize_t n = recv(client->fd.get(), chunk, sizeof chunk, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    client->request.append(chunk, static_cast<size_t>(n));
    if (client->request.find("\r\n\r\n") == std::string::npos) {
      return client->request.size() <= kLongestRequest;
    }
    client->answering = true;
    const bool known = client->request.rfind("GET /metrics ", 0) == 0;
    client->answer =
        known ? Response("200 OK", text()) : Response("404 Not Found", "GET /metrics\n");
  }
  const ssize_t n =
      send(client->fd.get(), client->answer.data(), client->answer.size(), MSG_NOSIGNAL);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  client->answer.erase(0, static_cast<size_t>(n));
  return !client->answer.empty();
}

}  // namespace rewire::control
