#include "net_plugin/socket/loans.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

namespace rewire::net {
namespace {

bool Allow(int fd) {
  const int on = 1;
  return setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
}

bool IsError(const cmsghdr& c) {
  return (c.cmsg_level == SOL_IP && c.cmsg_type == IP_RECVERR) ||
         (c.cmsg_level == SOL_IPV6 && c.cmsg_type == IPV6_RECVERR);
}

}  // namespace

Loans::Loans(int fd) : fd_(fd), on_(Allow(fd)) {}

std::vector<void*> Loans::TakeBack() {
  std::vector<void*> out;
  while (!owners_.empty()) {
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];
    msghdr message{};
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    if (recvmsg(fd_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (!IsError(*c)) continue;
      sock_extended_err e{};
      std::memcpy(&e, CMSG_DATA(c), sizeof e);
      if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      if ((e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) on_ = false;
      // The kernel reports the range ee_info to ee_data, modulo 2^32.
      for (uint32_t n = e.ee_info - first_; n <= e.ee_data - first_ && n < owners_.size(); ++n) {
        if (void* owner = std::exchange(owners_[n], nullptr)) out.push_back(owner);
      }
    }
    while (!owners_.empty() && owners_.front() == nullptr) {
      owners_.pop_front();
      ++first_;
    }
  }
  return out;
}

}  // namespace rewire::net
