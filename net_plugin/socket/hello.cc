#include "net_plugin/socket/hello.h"

#include <arpa/inet.h>

#include <cstring>

#include "reconfig/base/bytes.h"

namespace rewire::net {
namespace {

constexpr uint32_t kHandleMagic = 0x484E5752;     // "RWNH"
constexpr uint32_t kHelloMagic = 0x314E5752;      // "RWN1"
constexpr uint32_t kChallengeMagic = 0x434E5752;  // "RWNC"
constexpr uint32_t kProofMagic = 0x504E5752;      // "RWNP"
constexpr uint32_t kWelcomeMagic = 0x414E5752;    // "RWNA"

std::array<unsigned char, 32> Take32(ByteReader* in) {
  const std::string_view raw = in->Raw(32);
  return in->ok() ? KeyOfBytes(raw).bytes : std::array<unsigned char, 32>{};
}

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
  out.PutRaw(a.key.view());
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
  a.key.bytes = Take32(&in);
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
  out.Put(h.peer);
  out.Put(h.listener);
  out.PutRaw(ViewOf(h.nonce));
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
  h.peer = in.Get<uint64_t>();
  h.listener = in.Get<uint64_t>();
  h.nonce = Take32(&in);
  if (!in.Finished() || h.streams == 0 || h.streams > kMostStreams || h.index >= h.streams) {
    return {};
  }
  return h;
}

std::string EncodeChallenge(const Challenge& challenge) {
  ByteWriter out;
  out.Put(kChallengeMagic);
  out.Put(challenge.answer);
  out.PutRaw(ViewOf(challenge.nonce));
  out.PutRaw(ViewOf(challenge.proof));
  return out.Take();
}

std::optional<Challenge> DecodeChallenge(std::span<const char> bytes) {
  ByteReader in({bytes.data(), bytes.size()});
  if (in.Get<uint32_t>() != kChallengeMagic) return {};
  const auto answer = in.Get<uint32_t>();
  Challenge challenge;
  challenge.nonce = Take32(&in);
  challenge.proof = Take32(&in);
  if (!in.Finished() || answer < 1 || answer > 3) return {};
  challenge.answer = static_cast<Answer>(answer);
  return challenge;
}

std::string EncodeProof(const Code& proof) {
  ByteWriter out;
  out.Put(kProofMagic);
  out.Put(uint32_t{0});
  out.PutRaw(ViewOf(proof));
  return out.Take();
}

std::optional<Code> DecodeProof(std::span<const char> bytes) {
  ByteReader in({bytes.data(), bytes.size()});
  if (in.Get<uint32_t>() != kProofMagic || in.Get<uint32_t>() != 0) return {};
  const Code proof = Take32(&in);
  if (!in.Finished()) return {};
  return proof;
}

std::string EncodeWelcome() {
  ByteWriter out;
  out.Put(kWelcomeMagic);
  out.Put(uint32_t{1});
  return out.Take();
}

bool IsWelcome(std::span<const char> bytes) {
  return std::string_view(bytes.data(), bytes.size()) == EncodeWelcome();
}

Key LinkKey(const Key& job, uint64_t incarnation, uint64_t listener, const Key& key) {
  ByteWriter context;
  context.Put(incarnation);
  context.Put(listener);
  context.PutRaw(key.view());
  return DeriveKey(job, "rewire net link", context.bytes());
}

uint64_t OpenTag(const Key& link_key, uint64_t link, uint32_t use) {
  ByteWriter message;
  message.Put(link);
  message.Put(use);
  const Code code = CodeOf(link_key, "rewire net open", message.bytes());
  return ByteReader(ViewOf(code)).Get<uint64_t>();
}

bool IsOpenTag(uint64_t tag, const Key& link_key, uint64_t link, uint32_t use) {
  const uint64_t right = OpenTag(link_key, link, use);
  Code expected{};
  Code sent{};
  std::memcpy(expected.data(), &right, sizeof right);
  std::memcpy(sent.data(), &tag, sizeof tag);
  return SameCode(expected, ViewOf(sent));
}

}  // namespace rewire::net
