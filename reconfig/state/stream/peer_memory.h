// Device memory that members of one node share: the source's side, which finds the allocations of
// tensors and keeps the handles by which others map them, and the target's side, which maps them.
//
// A source must not free offered memory while another member has it mapped: the CUDA driver leaves
// the behaviour undefined for memory from cuMemAlloc. Targets therefore unmap before they report
// that they are finished, and the source frees nothing before the commit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/state/stream/descriptor_server.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire {
struct CudaDriver;
}

namespace rewire::state {

// The source's offered memory. Thread-compatible. One thread must make all Add() and Publish()
// calls; another thread may destroy the object.
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

// Other members' memory, mapped into this process. Thread-compatible.
class PeerMappings {
 public:
  PeerMappings() = default;
  ~PeerMappings() { CloseAll(); }
  PeerMappings(const PeerMappings&) = delete;
  PeerMappings& operator=(const PeerMappings&) = delete;

  // Maps the offered tensor into the context and returns its place in this process, which is valid
  // until CloseAll(). `server`: the descriptor server's name in the offer.
  absl::StatusOr<StatePlace> Open(const OfferedTensor& offered, const std::string& server,
                                  CUcontext context, Time deadline);
  void CloseAll();

 private:
  // Reserved address space; its segments are mapped from `begin` on, one after the other.
  struct Range {
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    size_t mapped = 0;
  };
  absl::Status UseDevice(CUcontext context);
  absl::StatusOr<CUdeviceptr> OpenHandle(const OfferedSegment& segment);
  absl::StatusOr<CUdeviceptr> OpenDescriptors(const OfferedTensor& offered,
                                              const std::string& server, Time deadline);
  absl::Status MapSegment(const OfferedSegment& segment, DescriptorClient* client, Time deadline,
                          Range* range);
  [[nodiscard]] absl::Status Check(const char* call, CUresult result) const;
  void Close(const Range& range);

  const CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  std::map<std::string, CUdeviceptr> by_handle_;
  std::vector<Range> ranges_;
};

}  // namespace rewire::state
