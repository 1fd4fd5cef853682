// Both sides of the net plugin's handshake by hand, byte by byte, as an attacker or a slow peer
// would do it. Every wait has a deadline.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "net_plugin/socket/address.h"
#include "net_plugin/socket/hello.h"
#include "reconfig/base/socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net_test {

// A connection to a listener, on which these bytes were written.
inline UniqueFd Visit(const net::ListenAddress& to, const std::string& bytes) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address),
                    net::AddressLength(to.address)),
            0);
  EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  return fd;
}

// So many bytes, or fewer when the peer ends the connection first.
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

// Whether the peer ends the connection without a further byte.
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

// The right answer to a challenge.
inline std::string ProofFor(const net::ListenAddress& to, const std::string& hello,
                            const net::Challenge& challenge, const Key& job = {}) {
  const Key key = net::LinkKey(job, to.incarnation, to.listener, to.key);
  return net::EncodeProof(ProofOf(Side::kConnecting, key, hello, challenge.nonce));
}

}  // namespace rewire::net_test
