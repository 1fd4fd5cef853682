// The source's side of sharing device memory inside a node: finds the allocations of tensors and
// keeps the handles by which others map them. Thread-compatible. One thread must make all Add() and
// Publish() calls; another thread may destroy the object.
//
// A source must not free offered memory while another member has it mapped: the CUDA driver leaves
// the behaviour undefined for memory from cuMemAlloc. Targets therefore unmap before they report
// that they are finished, and the source frees nothing before the commit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/state/stream/descriptor_server.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire {
struct CudaDriver;
}

namespace rewire::state {

class OfferedMemory {
 public:
  OfferedMemory() = default;
  ~OfferedMemory();
  OfferedMemory(const OfferedMemory&) = delete;
  OfferedMemory& operator=(const OfferedMemory&) = delete;

  // Offers a tensor's memory. Fails when the memory cannot be shared; its bytes are then sent.
  absl::Status Add(uint32_t tensor, const StatePlace& place, uint64_t bytes);
  // Returns the offer of all added tensors. From then on a server hands over descriptors.
  PeerOffer Publish(Epoch epoch);

 private:
  absl::StatusOr<OfferedSegment> SegmentAt(CUdeviceptr address);
  UniqueFd Export(uint32_t index) const;

  const CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  std::vector<OfferedTensor> tensors_;
  std::vector<CUmemGenericAllocationHandle> handles_;  // by index; each keeps its memory allocated
  std::unique_ptr<DescriptorServer> server_;           // ends before the handles are released
};

}  // namespace rewire::state
