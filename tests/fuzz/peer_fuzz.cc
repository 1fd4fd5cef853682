// libFuzzer: any bytes as the members' descriptions of tensors and device memory. An accepted
// segment lies inside its allocation; an accepted list encodes to the same bytes.
#include <string_view>

#include "reconfig/elastic/participant/shape_list.h"
#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/peer_offer.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto offer = rewire::state::DecodePeerOffer(bytes); offer.ok()) {
    for (const rewire::state::OfferedTensor& tensor : offer->tensors) {
      for (const rewire::state::OfferedSegment& segment : tensor.segments) {
        Require(segment.offset <= segment.allocation);
        Require(segment.bytes <= segment.allocation - segment.offset);
      }
    }
    Require(rewire::state::EncodePeerOffer(*offer) == bytes);
  }
  if (const auto contents = rewire::state::DecodeContents(bytes); contents.ok()) {
    Require(rewire::state::EncodeContents(*contents) == bytes);
  }
  if (const auto tensors = rewire::state::DecodeTensors(bytes); tensors.ok()) {
    Require(rewire::state::EncodeTensors(*tensors) == bytes);
  }
  if (const auto shapes = rewire::elastic::DecodeShapes(bytes); shapes.ok()) {
    Require(rewire::elastic::EncodeShapes(*shapes) == bytes);
  }
  return 0;
}
