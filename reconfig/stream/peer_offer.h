// What a member says of its device memory to members on its node that will copy from it (pure
// values, any thread), and the bytes it says it in (docs/stream.md). offered_memory.h makes offers,
// peer_mappings.h maps them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/transition/world.h"

namespace rewire {

// A run of a part's bytes inside one allocation.
struct OfferedSegment {
  enum class Kind : uint8_t {
    kHandle = 0,      // from cuMemAlloc: by its CUDA IPC handle
    kDescriptor = 1,  // from cuMemCreate: by a descriptor that the offer's server gives for `index`
  };
  Kind kind = Kind::kHandle;
  uint64_t bytes = 0;       // of the part
  uint64_t offset = 0;      // of the first of them in the allocation
  uint64_t allocation = 0;  // bytes of the allocation
  CUipcMemHandle handle{};
  uint32_t index = 0;
};

// A member's part of one tensor; its segments follow each other in memory.
struct OfferedTensor {
  uint32_t tensor = 0;
  std::vector<OfferedSegment> segments;
  [[nodiscard]] uint64_t bytes() const;
};

struct PeerOffer {
  Epoch epoch = 0;     // of the transition it is for
  std::string node;    // two members are on one node when these are equal
  std::string server;  // where its descriptors are given out; empty when it has none
  std::vector<OfferedTensor> tensors;
};

// Equal for all processes between which memory can be shared: one boot of one kernel, one namespace
// of process ids. Empty when that cannot be known.
std::string NodeIdentity();
std::string EncodePeerOffer(const PeerOffer& offer);
// Takes any bytes. Not ok: a count does not fit, or a segment is not inside its allocation.
absl::StatusOr<PeerOffer> DecodePeerOffer(std::string_view bytes);

}  // namespace rewire
