// The messages that begin a stream connection: hello, challenge, proof. docs/stream.md has the
// bytes.
//
// Sizes are fixed and numbers are little-endian. Decoding accepts any bytes. Pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reconfig/auth/key.h"
#include "reconfig/world/world.h"

namespace rewire::state {

enum class Purpose : uint16_t {
  kTransition = 1,  // state for the next epoch
  kSnapshot = 2,    // a buddy copy, within the current epoch
  kNames = 3,       // one question: the value of a name
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
std::optional<StreamHello> DecodeStreamHello(std::string_view bytes);

// The answer to a hello. Not known: there is no such stream, receiver or sender here now. Then
// nonce and proof are zero, and the connection is closed.
struct StreamChallenge {
  bool known = false;
  Nonce nonce{};
  Code proof{};  // proof of the listening side
  bool operator==(const StreamChallenge&) const = default;
};
inline constexpr size_t kStreamChallengeSize = 72;
std::string EncodeStreamChallenge(const StreamChallenge& challenge);
std::optional<StreamChallenge> DecodeStreamChallenge(std::string_view bytes);

// The proof of the connecting side. A Reply (fragment.h) says that the proof was accepted.
inline constexpr size_t kStreamProofSize = 40;
std::string EncodeStreamProof(const Code& proof);
std::optional<Code> DecodeStreamProof(std::string_view bytes);

// Derives the key of the proofs for one epoch (or the names), one purpose and one pair of members.
Key ConnectionKey(const Key& stream, const StreamHello& hello);

}  // namespace rewire::state
