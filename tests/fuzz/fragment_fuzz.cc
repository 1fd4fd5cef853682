// libFuzzer: any bytes as a fragment's header and as a reply, and any fields with a header's valid
// check. An accepted header has its bytes inside a fragment and below 2^64, and accepted input
// encodes to the same bytes.
#include <string>
#include <string_view>

#include "reconfig/base/bytes.h"
#include "reconfig/base/hash.h"
#include "reconfig/state/stream/stream_messages.h"
#include "tests/fuzz/require.h"

namespace {

using rewire::state::kHeaderSize;

void CheckHeader(std::string_view bytes) {
  const auto header = rewire::state::DecodeHeader(bytes);
  if (!header.ok()) return;
  Require(header->bytes > 0 && header->bytes <= rewire::state::kFragmentBytes);
  Require(header->offset + header->bytes > header->offset);
  Require(rewire::state::EncodeHeader(*header) == bytes);
}

// Uses the input as the fields of a header, because the fuzzer guesses neither magic nor check.
void CheckFields(std::string_view fields) {
  constexpr size_t kMagic = 4;
  constexpr size_t kCheck = 8;
  std::string bytes = rewire::state::EncodeHeader({}).substr(0, kMagic);
  bytes += fields.substr(0, kHeaderSize - kMagic - kCheck);
  rewire::ByteWriter check;
  check.Put(rewire::ContentHash(bytes.data(), bytes.size(), 0));
  CheckHeader(bytes + check.Take());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckHeader(bytes);
  CheckFields(bytes);
  if (const auto reply = rewire::state::DecodeReply(bytes); reply.ok()) {
    Require(rewire::state::EncodeReply(*reply) == bytes);
  }
  return 0;
}
