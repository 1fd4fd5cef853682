// Gives file descriptors to other processes of this user on this node, over an abstract Unix socket
// of SOCK_SEQPACKET: the way in which memory that cannot be opened by a name is shared. A request
// is one u32, the answer one byte: 1 with a descriptor beside it, or 0 for none.
//
// The server has a thread of its own ("rewire-share"); a client belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class DescriptorServer {
 public:
  // Called on the server's thread; what it gives is sent and closed. Not valid: there is none.
  using Make = std::function<UniqueFd(uint32_t index)>;

  static absl::StatusOr<std::unique_ptr<DescriptorServer>> Start(Make make);
  // Ends and joins the thread: no Make runs any more.
  ~DescriptorServer();

  // For a client on this node; random.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  DescriptorServer(Make make, std::string name, UniqueFd listener, UniqueFd stop);
  void Run();
  // False: this client is through, or asks wrongly.
  bool Answer(int client);

  const Make make_;
  const std::string name_;
  ListeningSocket listener_;
  const UniqueFd stop_;
  std::thread thread_;
};

class DescriptorClient {
 public:
  static absl::StatusOr<DescriptorClient> Connect(const std::string& name);
  // NotFound: the server has none for this index.
  absl::StatusOr<UniqueFd> Ask(uint32_t index, Time deadline);

 private:
  explicit DescriptorClient(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;
};

}  // namespace rewire
