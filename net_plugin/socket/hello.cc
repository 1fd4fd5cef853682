#include "net_plugin/socket/hello.h"

#include <arpa/inet.h>

#include <cstring>

#include "reconfig/base/bytes.h"

namespace rewire::net {
namespace {

constexpr uint32_t kHandleMagic = 0x484E5752;   // "RWNH"
constexpr uint32_t kHelloMagic = 0x314E5752;    // "RWN1"
constexpr uint32_t kWelcomeMagic = 0x414E5752;  // "RWNA"

}  // namespace

void EncodeAddress(const ListenAddress& a, void* handle) {
  ByteWriter out;
  out.Put(kHandleMagic);
  out.Put(kWireVersion);
  char ip[16] = {};
  uint16_t port = 0;
  uint32_t scope = 0;
  if (a.address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(a.address);
    std::memcpy(ip, &in.sin6_addr, 16);
    port = in.sin6_port;
    scope = in.sin6_scope_id;
  } else {
    const auto& in = reinterpret_cast<const sockaddr_in&>(a.address);
    std::memcpy(ip, &in.sin_addr, 4);
    port = in.sin_port;
  }
  out.Put(static_cast<uint16_t>(a.address.ss_family == AF_INET6 ? 6 : 4));
  out.PutRaw({ip, sizeof ip});
  out.Put(static_cast<uint32_t>(ntohs(port)));
  out.Put(scope);
  out.Put(a.incarnation);
  out.Put(a.listener);
  out.Put(a.key);
  out.Put(a.attempt);
  out.Put(a.device);
  out.Put(a.ports);
  out.Put(a.others);
  std::memset(handle, 0, kHandleBytes);
  std::memcpy(handle, out.bytes().data(), out.bytes().size());
}

std::optional<ListenAddress> DecodeAddress(const void* handle) {
  ByteReader in({static_cast<const char*>(handle), kHandleBytes});
  if (in.Get<uint32_t>() != kHandleMagic || in.Get<uint16_t>() != kWireVersion) return {};
  const auto family = in.Get<uint16_t>();
  const std::string_view ip = in.Raw(16);
  const uint16_t port = htons(static_cast<uint16_t>(in.Get<uint32_t>()));
  const auto scope = in.Get<uint32_t>();
  ListenAddress a;
  if (family == 6) {
    auto& out = reinterpret_cast<sockaddr_in6&>(a.address);
    out.sin6_family = AF_INET6;
    out.sin6_port = port;
    out.sin6_scope_id = scope;
    std::memcpy(&out.sin6_addr, ip.data(), 16);
  } else if (family == 4) {
    auto& out = reinterpret_cast<sockaddr_in&>(a.address);
    out.sin_family = AF_INET;
    out.sin_port = port;
    std::memcpy(&out.sin_addr, ip.data(), 4);
  } else {
    return {};
  }
  a.incarnation = in.Get<uint64_t>();
  a.listener = in.Get<uint64_t>();
  a.key = in.Get<uint64_t>();
  a.attempt = in.Get<uint64_t>();
  a.device = in.Get<uint64_t>();
  a.ports = in.Get<uint8_t>();
  a.others = in.Get<uint8_t>();
  return a;
}

std::string EncodeHello(const Hello& h) {
  ByteWriter out;
  out.Put(kHelloMagic);
  out.Put(h.version);
  out.Put(h.streams);
  out.Put(h.index);
  out.Put(uint16_t{0});
  out.Put(uint32_t{0});
  out.Put(h.link);
  out.Put(h.incarnation);
  out.Put(h.listener);
  out.Put(h.key);
  out.Put(h.job);
  return out.Take();
}

std::optional<Hello> DecodeHello(std::span<const char> bytes) {
  ByteReader in({bytes.data(), bytes.size()});
  if (in.Get<uint32_t>() != kHelloMagic) return {};
  Hello h;
  h.version = in.Get<uint16_t>();
  h.streams = in.Get<uint16_t>();
  h.index = in.Get<uint16_t>();
  in.Get<uint16_t>();
  in.Get<uint32_t>();
  h.link = in.Get<uint64_t>();
  h.incarnation = in.Get<uint64_t>();
  h.listener = in.Get<uint64_t>();
  h.key = in.Get<uint64_t>();
  h.job = in.Get<uint64_t>();
  if (!in.Finished() || h.streams == 0 || h.streams > kMostStreams || h.index >= h.streams) {
    return {};
  }
  return h;
}

std::string EncodeWelcome(Welcome welcome) {
  ByteWriter out;
  out.Put(kWelcomeMagic);
  out.Put(welcome);
  return out.Take();
}

std::optional<Welcome> DecodeWelcome(std::span<const char> bytes) {
  ByteReader in({bytes.data(), bytes.size()});
  if (in.Get<uint32_t>() != kWelcomeMagic) return {};
  const auto value = in.Get<uint32_t>();
  if (!in.Finished() || value < 1 || value > 3) return {};
  return static_cast<Welcome>(value);
}

}  // namespace rewire::net
