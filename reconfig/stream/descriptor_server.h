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
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class DescriptorServer {
 public:
  // Called on the server's thread; what it gives is sent and closed. Not valid: there is none.
  using Make = std::function<UniqueFd(uint32_t index)>;

  // A client that asks nothing for `idle` is disconnected.
  static absl::StatusOr<std::unique_ptr<DescriptorServer>> Start(Make make,
                                                                 Duration idle = seconds(10));
  // Ends and joins the thread: no Make runs any more.
  ~DescriptorServer();

  // For a client on this node; random.
  [[nodiscard]] const std::string& name() const { return name_; }
  // Connections that the servers of this process have refused: of another user, idle, or too many.
  [[nodiscard]] static uint64_t turned_away();

 private:
  struct Client {
    UniqueFd fd;
    uint64_t pid = 0;
    Time heard{};
  };
  DescriptorServer(Make make, Duration idle, std::string name, UniqueFd listener, UniqueFd stop);
  void Run();
  void AcceptOne(Time now);
  // Disconnects who asks nothing.
  void DropIdle(Time now);
  // False: this client has ended its connection, or asks wrongly.
  bool Answer(int client);

  const Make make_;
  const Duration idle_;
  const std::string name_;
  ListeningSocket listener_;
  const UniqueFd stop_;
  std::vector<Client> clients_;  // owned by the thread
  std::thread thread_;
};

class DescriptorClient {
 public:
  // Waits for a place in the server's queue until the deadline.
  static absl::StatusOr<DescriptorClient> Connect(const std::string& name, Time deadline);
  // NotFound: the server has none for this index.
  absl::StatusOr<UniqueFd> Ask(uint32_t index, Time deadline);

 private:
  explicit DescriptorClient(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;
};

}  // namespace rewire
