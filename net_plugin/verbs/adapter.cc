#include "net_plugin/verbs/adapter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/verbs/verbs_listener.h"
#include "net_plugin/verbs/verbs_sender.h"
#include "reconfig/base/hash.h"

namespace rewire::net {
namespace {

constexpr Duration kConnect = seconds(30);

std::string NameOf(const std::vector<std::shared_ptr<Nic>>& nics) {
  std::string name;
  for (const std::shared_ptr<Nic>& nic : nics) {
    absl::StrAppend(&name, name.empty() ? "" : "+", nic->name());
  }
  return name;
}

// Never 0, and another for each set of ports.
uint64_t IdOf(const std::vector<std::shared_ptr<Nic>>& nics) {
  uint64_t id = 1;
  for (const std::shared_ptr<Nic>& nic : nics) {
    id = MixWord(MixWord(id, nic->device().info().guid), nic->port());
  }
  return id | 1;
}

}  // namespace

Adapter::Adapter(std::vector<std::shared_ptr<Nic>> nics, const sockaddr_storage& control,
                 Links* links, const ConnectionOptions& options)
    : nics_(std::move(nics)),
      name_(NameOf(nics_)),
      id_(IdOf(nics_)),
      control_(control),
      links_(links),
      options_(options) {}

absl::StatusOr<ListenAddress> Adapter::Listen() {
  absl::StatusOr<ListenAddress> address = links_->Listen(control_);
  if (!address.ok()) return address.status();
  address->device = id_;
  address->ports = static_cast<uint8_t>(nics_.size());
  return address;
}

std::unique_ptr<Listener> Adapter::MakeListener(uint64_t listener) {
  return std::make_unique<VerbsListener>(listener, this, links_);
}

Connection* Adapter::Attach(Link* link, bool sending, size_t peer_ports) const {
  if (link->attachment == nullptr) {
    link->attachment = std::make_unique<Connection>(link, sending, nics_, peer_ports, options_);
  }
  return static_cast<Connection*>(link->attachment.get());
}

absl::StatusOr<std::unique_ptr<Sender>> Adapter::Connect(ListenAddress* address) {
  MutexLock lock(&mutex_);
  const Time now = Now();
  std::erase_if(joining_, [now](const auto& entry) { return entry.second.deadline <= now; });
  auto found = joining_.find(address->attempt);
  if (found == joining_.end()) {
    absl::StatusOr<std::unique_ptr<Link>> link = links_->Connect(control_, 1, address, id_);
    if (!link.ok()) return link.status();
    if (*link == nullptr) return nullptr;
    const bool rested = (*link)->attachment != nullptr;
    if (rested) return std::make_unique<VerbsSender>(*std::move(link), links_);
    found = joining_.emplace(address->attempt, Joining{*std::move(link), {}}).first;
  }
  found->second.deadline = now + kConnect;
  Link* const link = found->second.link.get();
  const absl::StatusOr<bool> joined = Attach(link, true, address->ports)->Establish();
  if (joined.ok() && !*joined) return nullptr;
  std::unique_ptr<Link> ended = std::move(found->second.link);
  joining_.erase(found);
  if (!joined.ok()) return joined.status();
  return std::make_unique<VerbsSender>(std::move(ended), links_);
}

}  // namespace rewire::net
