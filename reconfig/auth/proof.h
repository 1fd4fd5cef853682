// Mutual challenge and response, the same on every kind of connection. The connecting side sends a
// hello with a fresh nonce. The listening side answers with its own nonce and its proof. The
// connecting side verifies that proof and sends its own proof.
//
// A proof covers the whole hello (protocol version, purpose, both identities, the first nonce) and
// the second nonce, under a label of its side. A proof therefore cannot be replayed, nor reflected
// to the side that made it. All functions are thread-safe, and pure except RandomNonce().
#pragma once

#include <array>
#include <string_view>

#include "reconfig/auth/key.h"

namespace rewire {

using Nonce = std::array<unsigned char, 32>;
using Code = std::array<unsigned char, 32>;

enum class Side { kConnecting, kListening };

Nonce RandomNonce();

// BLAKE2b-256 with the key over: u8 length of the label, the label, the message.
Code CodeOf(const Key& key, std::string_view label, std::string_view message);

// Returns one side's proof for this hello and the listening side's nonce.
Code ProofOf(Side side, const Key& key, std::string_view hello, const Nonce& challenge);

// Compares in constant time. Returns false if `bytes` does not have 32 bytes.
bool SameCode(const Code& expected, std::string_view bytes);

inline std::string_view ViewOf(const std::array<unsigned char, 32>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace rewire
