// The wire format of a link's sockets (docs/net.md): the address of a listener, the handshake of
// each connection, and the frames after it. Both transports use it. Thread-safe: plain values and
// pure functions, except Random(). Decoding accepts any bytes; a refusal is an InvalidArgument that
// names the message, the field, its value and the rule (Malformed()).
#pragma once

#include <netinet/in.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/abi/net_core.h"
#include "reconfig/auth/key.h"

namespace rewire::net {

inline constexpr uint16_t kWireVersion = 6;

// Returns an unpredictable number other than 0, for the identity of a process, listener, link or
// attempt.
[[nodiscard]] uint64_t Random();

// The refusal of a message that was received: "malformed hello: streams=0: must be 1 to 64".
[[nodiscard]] absl::Status Malformed(const char* message, const std::string& why);

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
// `handle` has kHandleBytes.
void EncodeAddress(const ListenAddress& address, void* handle);
absl::StatusOr<ListenAddress> DecodeAddress(const void* handle);

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
absl::StatusOr<Hello> DecodeHello(std::string_view bytes);

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
absl::StatusOr<Challenge> DecodeChallenge(std::string_view bytes);

// The connecting side's proof, on each connection.
inline constexpr size_t kProofBytes = 40;
std::string EncodeProof(const Code& proof);
absl::StatusOr<Code> DecodeProof(std::string_view bytes);

// The handshake's last message, on stream 0, after all streams have arrived and are authenticated.
inline constexpr size_t kWelcomeBytes = 8;
std::string EncodeWelcome();
absl::Status CheckWelcome(std::string_view bytes);

// Derives the key for all proofs to a listener from its own key and the job's key (zero: none).
Key LinkKey(const Key& job, uint64_t incarnation, uint64_t listener, const Key& key);
// The tag that an open frame carries instead of a key. The tag proves knowledge of the listener's
// key, for this use of this link alone.
uint64_t OpenTag(const Key& link_key, uint64_t link, uint32_t use);
// Compares in constant time.
bool IsOpenTag(uint64_t tag, const Key& link_key, uint64_t link, uint32_t use);

// After the handshake, a link's sockets carry headers, each followed by its payload.
enum class FrameKind : uint32_t {
  kData = 0x31445752,      // "RWD1": a chunk of a message
  kClose = 0x31435752,     // "RWC1": the sender has finished this use of the link
  kOpen = 0x314F5752,      // "RWO1": a new use, for the listener `sequence` with the key `total`
  kFinished = 0x31525752,  // "RWR1": the receiving side has also finished this use
  // The following kinds belong to links over RDMA (net_plugin/verbs). In frames about a rail,
  // `offset` is the rail's number and `sequence` its attempt to join.
  kJoin = 0x314A5652,     // "RVJ1": offers queues of `total` rails; an Offer follows
  kJoined = 0x31415652,   // "RVA1": the receiving side's queues; an Offer follows
  kReady = 0x31525652,    // "RVR1": both sides may use the rail
  kRefused = 0x314E5652,  // "RVN1": the rail is refused; the reason follows
  kFenced = 0x31465652,   // "RVF1": the rail is fenced; a report follows
  kClear = 0x31435652,    // "RVC1": entries of the clear-to-send ring, for receive `sequence`
  kPiece = 0x31505652,    // "RVP1": a piece of a message; `tag` is its immediate
  kTooLong = 0x314C5652,  // "RVL1": a message of `total` bytes exceeds its receive's buffer
};

// The fields are little-endian, in this order, without gaps.
struct FrameHeader {
  FrameKind kind = FrameKind::kData;
  uint32_t use = 0;       // of the link, from 1; a frame of another use is an error
  uint64_t sequence = 0;  // of the message within the use
  uint64_t total = 0;     // bytes of the message
  uint64_t offset = 0;    // of this chunk in the message
  uint32_t bytes = 0;     // payload bytes that follow
  int32_t tag = 0;
};
static_assert(sizeof(FrameHeader) == 40 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(std::endian::native == std::endian::little, "frames are written as they lie");

// Formats the fields for an error: "kind=0x31445752 use=1 sequence=4 total=8 offset=0 bytes=8".
[[nodiscard]] std::string FrameText(const FrameHeader& header);

inline constexpr uint32_t kMostFrameBytes = 1u << 30;
// A message is split into one chunk per stream within these bounds; NCCL sends 512 KiB at a time by
// default. The first chunk goes on stream 0; the other chunks may arrive on any stream.
inline constexpr size_t kLeastChunkBytes = 64 << 10;
inline constexpr size_t kMostChunkBytes = 2 << 20;

}  // namespace rewire::net
