#include "net_plugin/socket/wire_format.h"

#include <arpa/inet.h>
#include <sys/random.h>
#include <sys/types.h>

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
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

absl::Status WrongLength(const char* message, size_t bytes, size_t right) {
  return Malformed(message, absl::StrCat("bytes=", bytes, ": must be ", right));
}

absl::Status WrongMagic(const char* message, uint32_t magic, uint32_t right) {
  return Malformed(message, absl::StrCat("magic=0x", absl::Hex(magic), ": must be 0x",
                                         absl::Hex(right), " (the peer uses another protocol)"));
}

}  // namespace

uint64_t Random() {
  uint64_t value = 0;
  while (value == 0) {
    if (getrandom(&value, sizeof value, 0) != ssize_t{sizeof value}) value = 0;
  }
  return value;
}

absl::Status Malformed(const char* message, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed ", message, ": ", why));
}

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

absl::StatusOr<ListenAddress> DecodeAddress(const void* handle) {
  ByteReader in({static_cast<const char*>(handle), kHandleBytes});
  const auto magic = in.Get<uint32_t>();
  const auto version = in.Get<uint16_t>();
  const auto family = in.Get<uint16_t>();
  const std::string_view ip = in.Raw(16);
  const uint16_t port = htons(static_cast<uint16_t>(in.Get<uint32_t>()));
  const auto scope = in.Get<uint32_t>();
  ListenAddress a;
  a.incarnation = in.Get<uint64_t>();
  a.listener = in.Get<uint64_t>();
  a.key.bytes = Take32(&in);
  a.attempt = in.Get<uint64_t>();
  a.device = in.Get<uint64_t>();
  a.ports = in.Get<uint8_t>();
  a.others = in.Get<uint8_t>();
  if (magic != kHandleMagic) return WrongMagic("handle", magic, kHandleMagic);
  if (version != kWireVersion) {
    return Malformed("handle", absl::StrCat("version=", version, ": must be ", kWireVersion));
  }
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
    return Malformed("handle", absl::StrCat("address family=", family, ": must be 4 or 6"));
  }
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

absl::StatusOr<Hello> DecodeHello(std::string_view bytes) {
  ByteReader in(bytes);
  const auto magic = in.Get<uint32_t>();
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
  if (!in.Finished()) return WrongLength("hello", bytes.size(), kHelloBytes);
  if (magic != kHelloMagic) return WrongMagic("hello", magic, kHelloMagic);
  if (h.streams == 0 || h.streams > kMostStreams) {
    return Malformed("hello", absl::StrCat("streams=", h.streams, ": must be 1 to ", kMostStreams));
  }
  if (h.index >= h.streams) {
    return Malformed("hello",
                     absl::StrCat("stream=", h.index, ": must be less than streams=", h.streams));
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

absl::StatusOr<Challenge> DecodeChallenge(std::string_view bytes) {
  ByteReader in(bytes);
  const auto magic = in.Get<uint32_t>();
  const auto answer = in.Get<uint32_t>();
  Challenge challenge;
  challenge.nonce = Take32(&in);
  challenge.proof = Take32(&in);
  if (!in.Finished()) return WrongLength("challenge", bytes.size(), kChallengeBytes);
  if (magic != kChallengeMagic) return WrongMagic("challenge", magic, kChallengeMagic);
  if (answer < 1 || answer > 3) {
    return Malformed("challenge", absl::StrCat("answer=", answer, ": must be 1 to 3"));
  }
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

absl::StatusOr<Code> DecodeProof(std::string_view bytes) {
  ByteReader in(bytes);
  const auto magic = in.Get<uint32_t>();
  const auto zero = in.Get<uint32_t>();
  const Code proof = Take32(&in);
  if (!in.Finished()) return WrongLength("proof", bytes.size(), kProofBytes);
  if (magic != kProofMagic) return WrongMagic("proof", magic, kProofMagic);
  if (zero != 0) return Malformed("proof", absl::StrCat("word 1=", zero, ": must be 0"));
  return proof;
}

std::string EncodeWelcome() {
  ByteWriter out;
  out.Put(kWelcomeMagic);
  out.Put(uint32_t{1});
  return out.Take();
}

absl::Status CheckWelcome(std::string_view bytes) {
  ByteReader in(bytes);
  const auto magic = in.Get<uint32_t>();
  const auto one = in.Get<uint32_t>();
  if (!in.Finished()) return WrongLength("welcome", bytes.size(), kWelcomeBytes);
  if (magic != kWelcomeMagic) return WrongMagic("welcome", magic, kWelcomeMagic);
  if (one != 1) return Malformed("welcome", absl::StrCat("word 1=", one, ": must be 1"));
  return absl::OkStatus();
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

std::string FrameText(const FrameHeader& h) {
  return absl::StrCat("kind=0x", absl::Hex(static_cast<uint32_t>(h.kind)), " use=", h.use,
                      " sequence=", h.sequence, " total=", h.total, " offset=", h.offset,
                      " bytes=", h.bytes);
}

}  // namespace rewire::net
