#include "net_plugin/verbs/adapter.h"

#include <algorithm>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/verbs/verbs_receiver.h"
#include "net_plugin/verbs/verbs_sender.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/log.h"

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

// Returns a number other than 0, different for each set of ports.
uint64_t IdOf(const std::vector<std::shared_ptr<Nic>>& nics) {
  uint64_t id = 1;
  for (const std::shared_ptr<Nic>& nic : nics) {
    id = MixWord(MixWord(id, nic->device().info().guid), nic->port());
  }
  return id | 1;
}

Nics Joined(const std::vector<std::shared_ptr<Nic>>& own,
            const std::vector<std::shared_ptr<Nic>>& others) {
  Nics nics{own, own.size()};
  const size_t room = std::min(others.size(), kMostRails);
  nics.all.insert(nics.all.end(), others.begin(), others.begin() + static_cast<ptrdiff_t>(room));
  return nics;
}

}  // namespace

// Takes the links that arrive for one listener, and returns the first whose rails are joined.
class Adapter::VerbsListener final : public Listener {
 public:
  VerbsListener(uint64_t id, const Adapter* adapter, Links* links)
      : id_(id), adapter_(adapter), links_(links) {}
  ~VerbsListener() override { links_->Unlisten(id_); }
  absl::StatusOr<std::unique_ptr<Receiver>> Accept() override;

 private:
  struct Arrival {
    std::unique_ptr<Link> link;
    Time deadline;
  };

  const uint64_t id_;
  const Adapter* const adapter_;
  Links* const links_;
  std::list<Arrival> arrivals_;
};

Adapter::Adapter(const std::vector<std::shared_ptr<Nic>>& own,
                 const std::vector<std::shared_ptr<Nic>>& others, const sockaddr_storage& control,
                 Links* links, const ConnectionOptions& options)
    : own_(own),
      nics_(Joined(own, others)),
      name_(NameOf(own)),
      id_(IdOf(own)),
      control_(control),
      links_(links),
      options_(options) {}

absl::StatusOr<ListenAddress> Adapter::Listen() {
  absl::StatusOr<ListenAddress> address = links_->Listen(control_);
  if (!address.ok()) return address.status();
  address->device = id_;
  address->ports = static_cast<uint8_t>(nics_.chosen);
  address->others = static_cast<uint8_t>(nics_.all.size() - nics_.chosen);
  return address;
}

std::unique_ptr<Listener> Adapter::MakeListener(uint64_t listener) {
  return std::make_unique<VerbsListener>(listener, this, links_);
}

absl::StatusOr<std::unique_ptr<Receiver>> Adapter::VerbsListener::Accept() {
  absl::StatusOr<std::unique_ptr<Link>> came = links_->Accept(id_);
  if (!came.ok()) return came.status();
  if (*came != nullptr) {
    // A reused link already has its rails.
    if ((*came)->attachment != nullptr) {
      return std::make_unique<VerbsReceiver>(*std::move(came), links_);
    }
    arrivals_.push_back({*std::move(came), adapter_->options_.now() + adapter_->options_.arrival});
  }
  for (auto at = arrivals_.begin(); at != arrivals_.end();) {
    const absl::StatusOr<bool> joined = adapter_->Attach(at->link.get(), nullptr)->Establish();
    if (joined.ok() && *joined) {
      std::unique_ptr<Link> link = std::move(at->link);
      arrivals_.erase(at);
      return std::make_unique<VerbsReceiver>(std::move(link), links_);
    }
    const bool late = adapter_->options_.now() >= at->deadline;
    if (late) {
      REWIRE_WARN("net plugin: accept: peer %s did not finish the handshake within %.0f ms",
                  at->link->streams[0].peer().c_str(), ToMilliseconds(adapter_->options_.arrival));
    }
    // A peer that failed or timed out may connect again.
    at = late || !joined.ok() ? arrivals_.erase(at) : std::next(at);
  }
  return nullptr;
}

Connection* Adapter::Attach(Link* link, const ListenAddress* peer) const {
  if (link->attachment == nullptr) {
    std::optional<PeerPorts> ports;
    if (peer != nullptr) ports = PeerPorts{peer->ports, peer->others};
    link->attachment = std::make_unique<Connection>(link, nics_, ports, options_);
  }
  return static_cast<Connection*>(link->attachment.get());
}

absl::StatusOr<std::unique_ptr<Sender>> Adapter::Connect(ListenAddress* address) {
  MutexLock lock(&mutex_);
  const Time now = options_.now();
  std::erase_if(joining_, [now](const auto& entry) { return entry.second.deadline <= now; });
  auto found = joining_.find(address->attempt);
  if (found == joining_.end()) {
    absl::StatusOr<std::unique_ptr<Link>> link = links_->Connect(control_, 1, address, id_);
    if (!link.ok()) return link.status();
    if (*link == nullptr) return nullptr;
    const bool reused = (*link)->attachment != nullptr;
    if (reused) return std::make_unique<VerbsSender>(*std::move(link), links_);
    found = joining_.emplace(address->attempt, Joining{*std::move(link), {}}).first;
  }
  found->second.deadline = now + kConnect;
  Link* const link = found->second.link.get();
  const absl::StatusOr<bool> joined = Attach(link, address)->Establish();
  if (joined.ok() && !*joined) return nullptr;
  std::unique_ptr<Link> ended = std::move(found->second.link);
  joining_.erase(found);
  if (!joined.ok()) return joined.status();
  return std::make_unique<VerbsSender>(std::move(ended), links_);
}

}  // namespace rewire::net
