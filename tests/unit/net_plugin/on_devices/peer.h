// One end of a connection as a process of its own: "send" or "receive", in tests/rdma_vm's machine
// with four devices. Of peers_on_devices.cc, which runs itself so.
#pragma once

#include <string_view>

namespace rewire::net {

inline constexpr int kPeerFailed = 3;  // its exit code, when the plugin said that it failed

// The receiver writes its handle to standard output, and a byte for every 20 messages that have
// come whole and in order. The sender reads the handle from standard input, and sends until that
// ends. The exit code.
int RunPeer(std::string_view role);

}  // namespace rewire::net
