// The messages of a stream connection and their bytes: hello, challenge and proof, then headers of
// fragments and replies. docs/stream.md has the layouts. For both sides of a connection; users of
// the transport need only FragmentHeader and StreamKey.
//
// Each message has a fixed size, numbers are little-endian, and every field is checked before its
// use. Decoding accepts any bytes: an error is kInvalidArgument and names the message, the field
// and the rule. The functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/auth/key.h"
#include "reconfig/world/world.h"

namespace rewire::state {

inline constexpr size_t kMaxNameBytes = 256;       // of the name in a kNames question
inline constexpr size_t kFragmentBytes = 1 << 20;  // maximum state bytes of a fragment

enum class Purpose : uint16_t {
  kTransition = 1,  // state for the next epoch
  kSnapshot = 2,    // a buddy copy, within the current epoch
  kNames = 3,       // one question for the value of a name
};

// The subject of a connection. Only members that have `secret` can take part: the key of the epoch,
// or of the names.
struct StreamKey {
  Purpose purpose = Purpose::kTransition;
  Epoch epoch = 0;
  Key secret;
  auto operator<=>(const StreamKey&) const = default;
};

// The first bytes, sent by the connecting side. They contain no key.
struct StreamHello {
  Purpose purpose = Purpose::kTransition;
  Epoch epoch = 0;
  MemberId sender = 0;
  MemberId receiver = 0;
  uint64_t sender_incarnation = 0;
  uint64_t receiver_incarnation = 0;
  Nonce nonce{};
  bool operator==(const StreamHello&) const = default;
};
inline constexpr size_t kStreamHelloSize = 72;
std::string EncodeStreamHello(const StreamHello& hello);
absl::StatusOr<StreamHello> DecodeStreamHello(std::string_view bytes);

// The answer to a hello. If `known` is false, this process has no such stream, receiver or sender
// now; nonce and proof are zero, and the connection is closed.
struct StreamChallenge {
  bool known = false;
  Nonce nonce{};
  Code proof{};  // proof of the listening side
  bool operator==(const StreamChallenge&) const = default;
};
inline constexpr size_t kStreamChallengeSize = 72;
std::string EncodeStreamChallenge(const StreamChallenge& challenge);
absl::StatusOr<StreamChallenge> DecodeStreamChallenge(std::string_view bytes);

// The proof of the connecting side. Reply::kAccepted says that the proof was accepted.
inline constexpr size_t kStreamProofSize = 40;
std::string EncodeStreamProof(const Code& proof);
absl::StatusOr<Code> DecodeStreamProof(std::string_view bytes);

// Derives the key of the proofs for one epoch (or the names), one purpose and one pair of members.
Key ConnectionKey(const Key& stream, const StreamHello& hello);

// The connecting side's part of one handshake. Thread-compatible.
class ConnectingHandshake {
 public:
  // stream: the key of the epoch or of the names. Draws the hello's nonce.
  ConnectingHandshake(const Key& stream, const StreamHello& hello);
  [[nodiscard]] const std::string& hello() const { return bytes_; }
  // Verifies the listening side's proof and returns the bytes of this side's proof. kUnavailable:
  // the listening side does not know the stream. kPermissionDenied: the proof is wrong, or the
  // bytes are not a challenge.
  [[nodiscard]] absl::StatusOr<std::string> ProofFor(std::string_view challenge) const;

 private:
  Key stream_;
  StreamHello hello_;
  std::string bytes_;  // of the hello
};

struct FragmentHeader {
  Epoch epoch = 0;
  uint64_t version = 0;  // of the state; 0 where the epoch is enough
  uint32_t tensor = 0;
  uint32_t bytes = 0;    // state bytes after the header, 1 .. kFragmentBytes
  uint64_t offset = 0;   // in bytes; docs/stream.md
  uint64_t content = 0;  // HashContent of the bytes at the offset
  bool operator==(const FragmentHeader&) const = default;
};
inline constexpr size_t kHeaderSize = 56;
std::string EncodeHeader(const FragmentHeader& header);
absl::StatusOr<FragmentHeader> DecodeHeader(std::string_view bytes);

enum class Reply : uint32_t {
  kAccepted = 1,  // answers a proof: fragments, or the question, may follow
  kPlaced = 2,    // answers a fragment, in the order of fragments
  kRejected = 3,  // answers a fragment with wrong bytes; the connection is then closed
};
inline constexpr size_t kReplySize = 8;
std::string EncodeReply(Reply reply);
absl::StatusOr<Reply> DecodeReply(std::string_view bytes);

}  // namespace rewire::state
