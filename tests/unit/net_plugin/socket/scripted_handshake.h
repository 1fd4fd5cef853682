// Both sides of the net plugin's handshake by hand, byte by byte, like an attacker or a slow peer.
// Every wait has a deadline. Thread-safe.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "net_plugin/socket/address.h"
#include "net_plugin/socket/wire_format.h"
#include "reconfig/base/socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net_test {

// Connects to a listener and writes these bytes.
inline UniqueFd Visit(const net::ListenAddress& to, const std::string& bytes) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address),
                    net::AddressLength(to.address)),
            0);
  EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  return fd;
}

// Reads `bytes` bytes, or fewer if the peer ends the connection first.
inline std::string ReadBytes(int fd, size_t bytes) {
  std::string in;
  while (in.size() < bytes && WaitReady(fd, POLLIN, Now() + seconds(20))) {
    char buffer[256];
    const ssize_t n = recv(fd, buffer, std::min(sizeof buffer, bytes - in.size()), MSG_DONTWAIT);
    if (n <= 0) break;
    in.append(buffer, static_cast<size_t>(n));
  }
  return in;
}

// Returns whether the peer ends the connection without a further byte.
inline bool IsClosed(int fd) {
  char byte = 0;
  return WaitReady(fd, POLLIN, Now() + seconds(20)) && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

inline net::Hello HelloTo(const net::ListenAddress& to, uint64_t link, uint16_t streams = 1) {
  net::Hello hello;
  hello.streams = streams;
  hello.link = link;
  hello.incarnation = 77;
  hello.peer = to.incarnation;
  hello.listener = to.listener;
  hello.nonce = RandomNonce();
  return hello;
}

// Returns the right answer to a challenge.
inline std::string ProofFor(const net::ListenAddress& to, const std::string& hello,
                            const net::Challenge& challenge, const Key& job = {}) {
  const Key key = net::LinkKey(job, to.incarnation, to.listener, to.key);
  return net::EncodeProof(ProofOf(Side::kConnecting, key, hello, challenge.nonce));
}

}  // namespace rewire::net_test
