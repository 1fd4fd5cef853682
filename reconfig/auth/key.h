// Secret keys of 256 bits, keys derived from them, and codes that prove knowledge of a key. The
// only cryptography is libsodium's keyed BLAKE2b; SECURITY.md lists the use of each key. The
// functions are pure, or read the kernel's random numbers; thread-safe.
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

}  // namespace rewire
