// Secret keys of 256 bits, keys derived from them, and the proofs that a side of a connection knows
// a key. The only cryptography is libsodium's keyed BLAKE2b; SECURITY.md lists the use of each key.
// The functions are pure, or read the kernel's random numbers; thread-safe.
//
// The proofs are a mutual challenge and response, the same on every kind of connection. The
// connecting side sends a hello with a fresh nonce. The listening side answers with its own nonce
// and its proof. The connecting side verifies that proof and sends its own proof.
//
// A proof covers the whole hello (protocol version, purpose, both identities, the first nonce) and
// the second nonce, under a label of its side. A proof therefore cannot be replayed, nor reflected
// to the side that made it.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rewire {

inline constexpr size_t kKeyBytes = 32;

struct Key {
  std::array<unsigned char, kKeyBytes> bytes{};  // all zero: no key
  // Not in constant time: compare only keys that this process already has.
  auto operator<=>(const Key&) const = default;
  [[nodiscard]] std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// Returns the first 32 bytes of `bytes`, which must have at least 32.
Key KeyOfBytes(std::string_view bytes);
Key RandomKey();

// Derives a key for one purpose. The result alone reveals neither `from` nor the keys of other
// labels or contexts. The label has at most 255 bytes.
Key DeriveKey(const Key& from, std::string_view label, std::string_view context);

// Accepts 32 to 64 hexadecimal digits (keys of 128 to 256 bits); nothing for any other text.
std::optional<Key> KeyOfHex(std::string_view text);
std::string HexOfKey(const Key& key);

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
