// libFuzzer: any bytes as a stream connection's hello, challenge and proof. Decoded input encodes
// to the same bytes.
#include <string_view>

#include "reconfig/state/stream/stream_messages.h"
#include "tests/fuzz/require.h"

using namespace rewire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto hello = state::DecodeStreamHello(bytes); hello.ok()) {
    Require(state::EncodeStreamHello(*hello) == bytes);
  }
  if (const auto challenge = state::DecodeStreamChallenge(bytes); challenge.ok()) {
    Require(state::EncodeStreamChallenge(*challenge) == bytes);
  }
  if (const auto proof = state::DecodeStreamProof(bytes); proof.ok()) {
    Require(state::EncodeStreamProof(*proof) == bytes);
  }
  return 0;
}
