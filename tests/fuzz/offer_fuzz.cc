// libFuzzer: any bytes as an offer of a rail or a report of a failed rail. Accepted input is in
// bounds, and decodes from its own encoding to the same value.
#include <string_view>

#include "net_plugin/verbs/offer.h"
#include "tests/fuzz/require.h"

using namespace rewire::net;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto offer = DecodeOffer(bytes); offer.ok()) {
    Require(!offer->queues.empty() && offer->queues.size() <= kMostQueuePairs);
    Require(Encode(*offer) == bytes);
  }
  if (const auto received = DecodeReceived(bytes); received.ok()) {
    Require(received->receives.size() <= kMaxRequests);
    for (const auto& r : received->receives) {
      Require(!r.pieces.empty() && r.pieces.size() <= kMaxRecvs);
    }
    Require(Encode(*received) == bytes);
  }
  if (const auto cleared = DecodeCleared(bytes); cleared.ok()) {
    Require(Encode(*cleared) == bytes);
  }
  return 0;
}
