// Secret keys of 256 bits, and what is computed with them: further keys, and codes that prove
// knowledge of a key. The only cryptography is libsodium's keyed BLAKE2b; SECURITY.md says which
// key is used where. The functions are pure or read the kernel's random numbers; thread-safe.
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
  // Not in constant time: it orders and compares keys that this process already has.
  auto operator<=>(const Key&) const = default;
  [[nodiscard]] std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// The first 32 bytes of `bytes`, which must have as many.
Key KeyOfBytes(std::string_view bytes);
Key RandomKey();

// A key for one purpose. Nobody who has the result alone can compute `from`, or another label's or
// context's key. The label is at most 255 bytes.
Key DeriveKey(const Key& from, std::string_view label, std::string_view context);

// 32 to 64 hexadecimal digits: keys of 128 to 256 bits. Nothing for any other text.
std::optional<Key> KeyOfHex(std::string_view text);
std::string HexOfKey(const Key& key);

}  // namespace rewire
