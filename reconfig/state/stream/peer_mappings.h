// Maps other members' device memory into this process. Thread-compatible.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/state/stream/descriptor_server.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire {
struct CudaDriver;
}

namespace rewire::state {

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
