#include "reconfig/rdma/gid.h"

#include <arpa/inet.h>

#include <algorithm>

namespace rewire::rdma {
namespace {
constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
}  // namespace

Gid Gid::OfIpv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  Gid gid;
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), gid.bytes.begin());
  gid.bytes[12] = a;
  gid.bytes[13] = b;
  gid.bytes[14] = c;
  gid.bytes[15] = d;
  return gid;
}

bool Gid::IsIpv4() const {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
}

bool Gid::IsLinkLocal() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

std::string Gid::Text() const {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

}  // namespace rewire::rdma
