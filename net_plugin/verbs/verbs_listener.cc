#include "net_plugin/verbs/verbs_listener.h"

#include <utility>

#include "net_plugin/verbs/adapter.h"
#include "net_plugin/verbs/verbs_receiver.h"
#include "reconfig/base/log.h"

namespace rewire::net {
VerbsListener::~VerbsListener() { links_->Unlisten(id_); }

absl::StatusOr<std::unique_ptr<Receiver>> VerbsListener::Accept() {
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

}  // namespace rewire::net
