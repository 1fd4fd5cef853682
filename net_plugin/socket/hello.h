// How a connection begins, and where a listener is: docs/net.md. Pure; decoding takes any bytes.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "net_plugin/core_abi.h"
#include "reconfig/auth/key.h"
#include "reconfig/auth/proof.h"

namespace rewire::net {

inline constexpr uint16_t kWireVersion = 6;

// What a listener tells, through NCCL, who shall connect to it. The rest of NCCL's 128 bytes is the
// connecting side's: it finds its own attempt again by `attempt`.
struct ListenAddress {
  sockaddr_storage address{};  // IPv4 or IPv6
  uint64_t incarnation = 0;    // of the listening process
  uint64_t listener = 0;
  Key key;               // of the listener; random
  uint64_t attempt = 0;  // 0: none yet
  uint64_t device = 0;   // which RDMA device listens; 0: sockets
  uint8_t ports = 0;     // of that device
  uint8_t others = 0;    // of its process, which stand in for these
};
void EncodeAddress(const ListenAddress& address, void* handle);
// Nothing when these are not the bytes of a handle of this version.
std::optional<ListenAddress> DecodeAddress(const void* handle);

// The first bytes on each connection, from the connecting side. No key is in them.
struct Hello {
  uint16_t version = kWireVersion;
  uint16_t streams = 0;      // of the link
  uint16_t index = 0;        // of this one
  uint64_t link = 0;         // random: equal for the streams of one link
  uint64_t incarnation = 0;  // of the connecting process
  uint64_t peer = 0;         // the incarnation of the process that is meant
  uint64_t listener = 0;
  Nonce nonce{};
};
inline constexpr size_t kHelloBytes = 80;
inline constexpr uint16_t kMostStreams = 64;
std::string EncodeHello(const Hello& hello);
std::optional<Hello> DecodeHello(std::span<const char> bytes);

// The listening side's answer to a hello, on each connection. Nonce and proof are zero where the
// answer is not kProve, and the connection is then closed.
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

// The last word, on stream 0 when all streams have come and are proved.
inline constexpr size_t kWelcomeBytes = 8;
std::string EncodeWelcome();
bool IsWelcome(std::span<const char> bytes);

// The key of all that is proved to a listener, from its own key and the job's (zero: none).
Key LinkKey(const Key& job, uint64_t incarnation, uint64_t listener, const Key& key);
// What an open frame carries in place of a key: it proves knowledge of the listener's, for this use
// of this link alone.
uint64_t OpenTag(const Key& link_key, uint64_t link, uint32_t use);
// Compares in constant time.
bool IsOpenTag(uint64_t tag, const Key& link_key, uint64_t link, uint32_t use);

}  // namespace rewire::net
