// Encodes and decodes the handshake of a connection and the address of a listener (docs/net.md).
// Thread-safe: pure functions. Decoding accepts any bytes.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "reconfig/abi/net_core.h"
#include "reconfig/auth/key.h"

namespace rewire::net {

inline constexpr uint16_t kWireVersion = 6;

// The address that a listener sends through NCCL to its connecting peer. The connecting side owns
// the rest of NCCL's 128 bytes and finds its own attempt again by `attempt`.
struct ListenAddress {
  sockaddr_storage address{};  // IPv4 or IPv6
  uint64_t incarnation = 0;    // of the listening process
  uint64_t listener = 0;
  Key key;               // of the listener; random
  uint64_t attempt = 0;  // 0: none yet
  uint64_t device = 0;   // which RDMA device listens; 0: sockets
  uint8_t ports = 0;     // of that device
  uint8_t others = 0;    // fallback NICs of its process
};
void EncodeAddress(const ListenAddress& address, void* handle);
// nullopt: the bytes are not a handle of this version.
std::optional<ListenAddress> DecodeAddress(const void* handle);

// The first bytes on each connection, from the connecting side. A hello contains no key.
struct Hello {
  uint16_t version = kWireVersion;
  uint16_t streams = 0;      // of the link
  uint16_t index = 0;        // of this stream
  uint64_t link = 0;         // random; equal for the streams of one link
  uint64_t incarnation = 0;  // of the connecting process
  uint64_t peer = 0;         // the incarnation of the intended process
  uint64_t listener = 0;
  Nonce nonce{};
};
inline constexpr size_t kHelloBytes = 80;
inline constexpr uint16_t kMostStreams = 64;
std::string EncodeHello(const Hello& hello);
std::optional<Hello> DecodeHello(std::span<const char> bytes);

// The listening side's answer to a hello, on each connection. If the answer is not kProve, nonce
// and proof are zero and the connection is then closed.
enum class Answer : uint32_t { kProve = 1, kVersion = 2, kUnknown = 3 };
struct Challenge {
  Answer answer = Answer::kProve;
  Nonce nonce{};
  Code proof{};
};
inline constexpr size_t kChallengeBytes = 72;
std::string EncodeChallenge(const Challenge& challenge);
std::optional<Challenge> DecodeChallenge(std::span<const char> bytes);

// The connecting side's proof, on each connection.
inline constexpr size_t kProofBytes = 40;
std::string EncodeProof(const Code& proof);
std::optional<Code> DecodeProof(std::span<const char> bytes);

// The handshake's last message, on stream 0, after all streams have arrived and are authenticated.
inline constexpr size_t kWelcomeBytes = 8;
std::string EncodeWelcome();
bool IsWelcome(std::span<const char> bytes);

// Derives the key for all proofs to a listener from its own key and the job's key (zero: none).
Key LinkKey(const Key& job, uint64_t incarnation, uint64_t listener, const Key& key);
// The tag that an open frame carries instead of a key. The tag proves knowledge of the listener's
// key, for this use of this link alone.
uint64_t OpenTag(const Key& link_key, uint64_t link, uint32_t use);
// Compares in constant time.
bool IsOpenTag(uint64_t tag, const Key& link_key, uint64_t link, uint32_t use);

}  // namespace rewire::net
