// libFuzzer: any bytes as a stream connection's hello, challenge and proof. Decoded input encodes
// to the same bytes.
#include <string_view>

#include "reconfig/state/stream/handshake.h"
#include "tests/fuzz/require.h"

using namespace rewire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto hello = state::DecodeStreamHello(bytes))
    Require(state::EncodeStreamHello(*hello) == bytes);
  if (const auto challenge = state::DecodeStreamChallenge(bytes)) {
    Require(state::EncodeStreamChallenge(*challenge) == bytes);
  }
  if (const auto proof = state::DecodeStreamProof(bytes))
    Require(state::EncodeStreamProof(*proof) == bytes);
  return 0;
}
