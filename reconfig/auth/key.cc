// Keys and proofs by keyed BLAKE2b; see key.h.
#include "reconfig/auth/key.h"

#include <sodium/crypto_generichash_blake2b.h>
#include <sodium/crypto_verify_32.h>
#include <sys/random.h>
#include <sys/types.h>

#include <algorithm>

namespace rewire {
namespace {

constexpr size_t kLeastHexDigits = 32;
constexpr std::string_view kConnecting = "rewire proof of the connecting side";
constexpr std::string_view kListening = "rewire proof of the listening side";

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Key KeyOfBytes(std::string_view bytes) {
  Key key;
  std::copy_n(bytes.begin(), kKeyBytes, reinterpret_cast<char*>(key.bytes.data()));
  return key;
}

Key RandomKey() {
  Key key;
  while (getrandom(key.bytes.data(), kKeyBytes, 0) != ssize_t{kKeyBytes}) {
  }
  return key;
}

Key DeriveKey(const Key& from, std::string_view label, std::string_view context) {
  return {CodeOf(from, label, context)};
}

std::optional<Key> KeyOfHex(std::string_view text) {
  if (text.size() < kLeastHexDigits || text.size() > 2 * kKeyBytes) return std::nullopt;
  Key key;
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = DigitOf(text[i]);
    if (digit < 0) return std::nullopt;
    key.bytes[i / 2] |= static_cast<unsigned char>(i % 2 == 0 ? digit << 4 : digit);
  }
  return key == Key{} ? std::nullopt : std::optional(key);
}

std::string HexOfKey(const Key& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : key.bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

Nonce RandomNonce() { return RandomKey().bytes; }

Code CodeOf(const Key& key, std::string_view label, std::string_view message) {
  std::string input(1, static_cast<char>(label.size()));
  input.append(label).append(message);
  Code code;
  crypto_generichash_blake2b(code.data(), code.size(),
                             reinterpret_cast<const unsigned char*>(input.data()), input.size(),
                             key.bytes.data(), key.bytes.size());
  return code;
}

Code ProofOf(Side side, const Key& key, std::string_view hello, const Nonce& challenge) {
  std::string message(hello);
  message.append(ViewOf(challenge));
  return CodeOf(key, side == Side::kConnecting ? kConnecting : kListening, message);
}

bool SameCode(const Code& expected, std::string_view bytes) {
  return bytes.size() == expected.size() &&
         crypto_verify_32(expected.data(), reinterpret_cast<const unsigned char*>(bytes.data())) ==
             0;
}

}  // namespace rewire
