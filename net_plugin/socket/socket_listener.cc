#include "net_plugin/socket/socket_listener.h"

#include "net_plugin/socket/links.h"
#include "net_plugin/socket/socket_receiver.h"

namespace rewire::net {

SocketListener::~SocketListener() { links_->Unlisten(id_); }

absl::StatusOr<std::unique_ptr<Receiver>> SocketListener::Accept() {
  absl::StatusOr<std::unique_ptr<Link>> link = links_->Accept(id_);
  if (!link.ok()) return link.status();
  if (*link == nullptr) return nullptr;
  return std::make_unique<SocketReceiver>(*std::move(link), links_);
}

}  // namespace rewire::net
