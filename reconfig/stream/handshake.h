// How a stream connection begins: hello, challenge, proof. docs/stream.md has the bytes.
//
// Fixed sizes, little-endian. Decoding takes any bytes from anyone. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reconfig/auth/key.h"
#include "reconfig/auth/proof.h"
#include "reconfig/transition/world.h"

namespace rewire {

enum class Purpose : uint16_t {
  kTransition = 1,  // state for the next epoch
  kSnapshot = 2,    // a buddy copy, within the current epoch
  kNames = 3,       // one question: the unique id behind a name
};

// The first bytes, from the side that connects. No key is in them.
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

// The answer. Not known: there is no such stream, receiver or sender here now; nonce and proof are
// zero, and the connection is closed.
struct StreamChallenge {
  bool known = false;
  Nonce nonce{};
  Code proof{};  // of the listening side
  bool operator==(const StreamChallenge&) const = default;
};
inline constexpr size_t kStreamChallengeSize = 72;
std::string EncodeStreamChallenge(const StreamChallenge& challenge);
std::optional<StreamChallenge> DecodeStreamChallenge(std::string_view bytes);

// The proof of the connecting side. A reply (fragment.h) says that it was accepted.
inline constexpr size_t kStreamProofSize = 40;
std::string EncodeStreamProof(const Code& proof);
std::optional<Code> DecodeStreamProof(std::string_view bytes);

// The key of the proofs: of one epoch (or of the names), one purpose and one pair of members.
Key ConnectionKey(const Key& stream, const StreamHello& hello);

}  // namespace rewire
