// libFuzzer: any bytes as a listener's handle, a hello, a challenge, a proof and a welcome.
// Accepted input is in bounds, and decodes from its own encoding to the same value.
#include <algorithm>
#include <cstring>
#include <string>

#include "net_plugin/socket/address.h"
#include "net_plugin/socket/wire_format.h"
#include "tests/fuzz/require.h"

using namespace rewire::net;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  char handle[kHandleBytes] = {};
  std::memcpy(handle, data, std::min(size, sizeof handle));
  if (const auto address = DecodeAddress(handle); address.ok()) {
    char again[kHandleBytes];
    EncodeAddress(*address, again);
    const auto same = DecodeAddress(again);
    Require(same.ok() && AddressText(same->address) == AddressText(address->address) &&
            same->key == address->key && same->attempt == address->attempt);
  }
  if (const auto hello = DecodeHello(bytes); hello.ok()) {
    Require(size == kHelloBytes && hello->index < hello->streams && hello->streams <= kMostStreams);
    const std::string again = EncodeHello(*hello);
    const auto same = DecodeHello(again);
    Require(same.ok() && same->link == hello->link && same->peer == hello->peer &&
            same->nonce == hello->nonce);
  }
  if (const auto challenge = DecodeChallenge(bytes); challenge.ok()) {
    Require(EncodeChallenge(*challenge) == bytes);
  }
  if (const auto proof = DecodeProof(bytes); proof.ok()) {
    Require(EncodeProof(*proof) == bytes);
  }
  Require(!CheckWelcome(bytes).ok() || bytes == EncodeWelcome());
  return 0;
}
