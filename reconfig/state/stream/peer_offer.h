// A member's description of its device memory for members on its node that will copy from it, and
// the encoding (docs/stream.md). peer_memory.h makes offers and maps them. Pure values;
// thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/world/world.h"

namespace rewire::state {

// A run of a part's bytes inside one allocation.
struct OfferedSegment {
  enum class Kind : uint8_t {
    kHandle = 0,  // from cuMemAlloc: mapped by its CUDA IPC handle
    // From cuMemCreate: mapped by a descriptor that the offer's server gives for `index`.
    kDescriptor = 1,
  };
  Kind kind = Kind::kHandle;
  uint64_t bytes = 0;       // of the part
  uint64_t offset = 0;      // in the allocation, of the segment's first byte
  uint64_t allocation = 0;  // bytes of the allocation
  CUipcMemHandle handle{};
  uint32_t index = 0;
};

// A member's part of one tensor; its segments are consecutive in memory.
struct OfferedTensor {
  uint32_t tensor = 0;
  std::vector<OfferedSegment> segments;
  [[nodiscard]] uint64_t bytes() const;
};

struct PeerOffer {
  Epoch epoch = 0;     // of the transition
  std::string node;    // two members are on one node when these are equal
  std::string server;  // address of the descriptor server; empty when there is none
  std::vector<OfferedTensor> tensors;
};

// Returns a text that is equal for all processes between which memory can be shared: one boot of
// one kernel, one namespace of process ids. Empty when this is unknown.
std::string NodeIdentity();
std::string EncodePeerOffer(const PeerOffer& offer);
// Decodes any bytes. Fails when a count does not fit, or a segment is not inside its allocation.
absl::StatusOr<PeerOffer> DecodePeerOffer(std::string_view bytes);

}  // namespace rewire::state
