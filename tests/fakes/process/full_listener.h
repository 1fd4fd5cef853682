// A TCP listener whose queue is full: the kernel drops the requests of new connections, as under a
// flood of connections. Thread-compatible.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "reconfig/base/socket.h"

namespace rewire {

class FullListener {
 public:
  FullListener() {
    EXPECT_TRUE(ListenTcp("127.0.0.1:0", &listener_, &address_).ok());
    // The queue takes one connection more than it is given here.
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    EXPECT_TRUE(ConnectTcp(address_, Now() + seconds(20), &filler_).ok());
  }
  [[nodiscard]] const std::string& address() const { return address_; }

  // Waits until `count` connections were requested and not answered. False: too few within 20 s.
  bool WaitForAttempts(size_t count) {
    std::set<std::string> attempts;
    const Time deadline = Now() + seconds(20);
    while (attempts.size() < count && Now() < deadline) {
      std::ifstream in("/proc/net/tcp");
      std::string line;
      while (std::getline(in, line)) {
        std::istringstream fields(line);
        std::string number, local, remote, state;
        fields >> number >> local >> remote >> state;
        // 02: the request has no answer yet.
        if (state == "02" && remote.substr(remote.find(':') + 1) == Port()) attempts.insert(local);
      }
    }
    return attempts.size() >= count;
  }

  // Makes room for one connection, and returns the first one that arrives; not valid: none did.
  UniqueFd Drain() {
    UniqueFd next;
    EXPECT_TRUE(Accept(listener_.get(), Now() + seconds(20), &next).ok());
    EXPECT_TRUE(Accept(listener_.get(), Now() + seconds(20), &next).ok());
    return next;
  }

 private:
  // The port as /proc/net/tcp writes it.
  [[nodiscard]] std::string Port() const {
    char text[8];
    (void)snprintf(text, sizeof text, "%04X", std::stoi(address_.substr(address_.find(':') + 1)));
    return text;
  }

  UniqueFd listener_;
  UniqueFd filler_;
  std::string address_;
};

}  // namespace rewire
