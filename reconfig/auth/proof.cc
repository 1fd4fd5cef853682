// Proofs by keyed BLAKE2b; see proof.h for the interface and thread safety.
#include "reconfig/auth/proof.h"

#include <sodium/crypto_generichash_blake2b.h>
#include <sodium/crypto_verify_32.h>

#include <string>

namespace rewire {
namespace {

constexpr std::string_view kConnecting = "rewire proof of the connecting side";
constexpr std::string_view kListening = "rewire proof of the listening side";

}  // namespace

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
