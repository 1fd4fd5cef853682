// Gives file descriptors to other processes of this user on this node, over an abstract Unix socket
// of SOCK_SEQPACKET. Members share memory that no name can open in this way. A request is one u32.
// The answer is one byte: 1 with a descriptor as ancillary data, or 0 without a descriptor.
//
// The server has its own thread ("rewire-share"). A client is thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/event_loop.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::state {

class DescriptorServer {
 public:
  // Called on the server's thread. The server sends and closes the result. Not valid: none exists.
  using Make = std::function<UniqueFd(uint32_t index)>;

  // The server disconnects a client that sends no request for `idle`.
  static absl::StatusOr<std::unique_ptr<DescriptorServer>> Start(Make make,
                                                                 Duration idle = seconds(10));
  // Ends and joins the thread: no Make runs after the destructor.
  ~DescriptorServer();

  // The random name that a client on this node passes to DescriptorClient::Connect().
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  struct Client {
    UniqueFd fd;
    uint64_t pid = 0;
    Time heard{};
  };
  DescriptorServer(Make make, Duration idle, std::string name, UniqueFd listener);
  void Run();
  void AcceptOne(Time now);
  // Disconnects the clients that send no request.
  void DropIdle(Time now);
  // False: this client has closed its connection, or sent a malformed request.
  bool Answer(int client);

  const Make make_;
  const Duration idle_;
  const std::string name_;
  ListeningSocket listener_;
  WakeEvent stop_;
  std::vector<Client> clients_;  // owned by the server's thread
  std::thread thread_;
};

class DescriptorClient {
 public:
  // Waits for a place in the server's queue until the deadline. Refuses a server of another user.
  static absl::StatusOr<DescriptorClient> Connect(const std::string& name, Time deadline);
  // NotFound: the server has no descriptor for this index.
  absl::StatusOr<UniqueFd> Ask(uint32_t index, Time deadline);

 private:
  explicit DescriptorClient(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;
};

}  // namespace rewire::state
