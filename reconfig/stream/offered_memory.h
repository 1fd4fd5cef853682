// The source's side of sharing device memory inside a node: finds the allocations behind tensors
// and keeps what others map them by. One thread makes it and adds; it may be destroyed by another.
//
// A source must not free what it has offered while somebody has it mapped (the CUDA driver leaves
// undefined what happens then to memory from cuMemAlloc): targets unmap before they say that they
// are through, and the source frees nothing before the commit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/stream/descriptor_server.h"
#include "reconfig/stream/peer_offer.h"
#include "reconfig/stream/state_memory.h"

namespace rewire {

struct CudaDriver;

class OfferedMemory {
 public:
  OfferedMemory() = default;
  ~OfferedMemory();
  OfferedMemory(const OfferedMemory&) = delete;
  OfferedMemory& operator=(const OfferedMemory&) = delete;

  // Not ok: the memory cannot be shared, and comes as bytes.
  absl::Status Add(uint32_t tensor, const StatePlace& place, uint64_t bytes);
  // What was added. From here on descriptors are given out.
  PeerOffer Publish(Epoch epoch);

 private:
  absl::StatusOr<OfferedSegment> SegmentAt(CUdeviceptr address);
  UniqueFd Export(uint32_t index) const;

  const CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  std::vector<OfferedTensor> tensors_;
  std::vector<CUmemGenericAllocationHandle> handles_;  // by index; each holds its memory
  std::unique_ptr<DescriptorServer> server_;           // ends before the handles go
};

}  // namespace rewire
