// Device memory of other members on this node: what a member offers, as the bytes it is offered in,
// and the mapping of it. Offers are pure values; a PeerMappings belongs to one thread.
//
// A source must not free what it has offered while somebody has it mapped (the CUDA driver leaves
// undefined what happens then): targets unmap before they say that they are through, and the source
// frees nothing before the commit.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/stream/state_memory.h"
#include "reconfig/transition/world.h"

namespace rewire {

// A member's part of one tensor, in memory that other processes of the node can map.
struct OfferedTensor {
  uint32_t tensor = 0;
  uint64_t bytes = 0;   // of the part
  uint64_t offset = 0;  // of its first byte in the allocation behind the handle
  CUipcMemHandle handle{};
};

struct PeerOffer {
  Epoch epoch = 0;   // of the transition it is for
  std::string node;  // two members are on one node when these are equal
  std::vector<OfferedTensor> tensors;
};

// Equal for all processes between which memory can be shared: one boot of one kernel, one namespace
// of process ids. Empty when that cannot be known.
std::string NodeIdentity();
std::string EncodePeerOffer(const PeerOffer& offer);
// Any bytes; nothing of what is not whole.
PeerOffer DecodePeerOffer(std::string_view bytes);
// Not ok: the memory cannot be shared (it did not come from cuMemAlloc, for example).
absl::StatusOr<OfferedTensor> OfferPlace(uint32_t tensor, const StatePlace& place, uint64_t bytes);

class PeerMappings {
 public:
  PeerMappings() = default;
  ~PeerMappings() { CloseAll(); }
  PeerMappings(const PeerMappings&) = delete;
  PeerMappings& operator=(const PeerMappings&) = delete;

  // Where the part lies for this process, in the context given.
  absl::StatusOr<StatePlace> Open(const OfferedTensor& offered, CUcontext context);
  void CloseAll();

 private:
  CUcontext context_ = nullptr;
  std::map<std::string, CUdeviceptr> mapped_;  // by handle
};

}  // namespace rewire
