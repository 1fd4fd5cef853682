// One end of a connection as a separate process: "send" or "receive", in tests/rdma_vm's machine
// with four devices. peers_on_devices.cc runs itself in these roles.
#pragma once

#include <string_view>

namespace rewire::net {

inline constexpr int kPeerFailed = 3;  // exit code if the plugin reported an error

// The receiver writes its handle to standard output, and a byte for every 20 messages that have
// arrived completely and in order. The sender reads the handle from standard input, and sends until
// standard input ends. Returns the exit code.
int RunPeer(std::string_view role);

}  // namespace rewire::net
