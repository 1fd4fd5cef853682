// A sender and a receiver over sockets in this process, with common operations of their tests.
// Owned by the test's thread.
#pragma once

#include <memory>
#include <vector>

#include "net_plugin/socket/links.h"
#include "net_plugin/socket/socket_receiver.h"
#include "net_plugin/socket/socket_sender.h"

namespace rewire::net_test {

sockaddr_storage LoopbackV4();

class SocketEnds {
 public:
  // Connects two ends of this address over `streams` streams.
  void Join(int streams, const sockaddr_storage& local = LoopbackV4(),
            net::Splitting splitting = net::Splitting::kAll);
  // Descriptors of the joined link: `from` the sender's, `to` the receiver's.
  [[nodiscard]] int from(size_t stream) const { return from_[stream]; }
  [[nodiscard]] int to(size_t stream) const { return to_[stream]; }

  net::Request* Send(const std::vector<char>& bytes);
  net::Request* Receive(std::vector<char>* into);
  static absl::Status Wait(net::Comm* comm, net::Request* request);
  // Returns whether the request is done, without waiting.
  static bool Done(net::Comm* comm, net::Request* request);

  net::Links here{{}};
  net::Links there{{}};
  std::unique_ptr<net::SocketSender> sender;
  std::unique_ptr<net::SocketReceiver> receiver;

 private:
  std::vector<int> from_;
  std::vector<int> to_;
};

}  // namespace rewire::net_test
