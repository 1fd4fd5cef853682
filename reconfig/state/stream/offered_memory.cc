// Finds allocations and exports their handles; see offered_memory.h.
#include "reconfig/state/stream/offered_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/log.h"

namespace rewire::state {

OfferedMemory::~OfferedMemory() {
  server_.reset();
  if (handles_.empty() || driver_->CtxSetCurrent(context_) != CUDA_SUCCESS) return;
  for (const CUmemGenericAllocationHandle handle : handles_) driver_->MemRelease(handle);
}

absl::Status OfferedMemory::Add(uint32_t tensor, const StatePlace& place, uint64_t bytes) {
  if (place.kind != MemoryKind::kDevice || bytes == 0) {
    return absl::FailedPreconditionError(absl::StrCat("offer tensor ", tensor, ": bytes=", bytes,
                                                      ": must be device memory and not empty"));
  }
  if (context_ != nullptr && context_ != place.context) {
    return absl::UnimplementedError(
        absl::StrCat("offer tensor ", tensor, ": state in the memory of more than one device"));
  }
  std::string error;
  driver_ = CudaDriver::Get(&error);
  if (driver_ == nullptr) return absl::UnavailableError(error);
  context_ = place.context;
  if (const CUresult result = driver_->CtxSetCurrent(context_); result != CUDA_SUCCESS) {
    return absl::InternalError(driver_->Describe("cuCtxSetCurrent", result));
  }
  OfferedTensor offered{tensor, {}};
  const auto address = reinterpret_cast<CUdeviceptr>(place.data);
  for (uint64_t at = 0; at < bytes;) {
    absl::StatusOr<OfferedSegment> segment = SegmentAt(address + at);
    if (!segment.ok()) return segment.status();
    segment->bytes = std::min(segment->allocation - segment->offset, bytes - at);
    at += segment->bytes;
    offered.segments.push_back(*segment);
  }
  tensors_.push_back(std::move(offered));
  return absl::OkStatus();
}

absl::StatusOr<OfferedSegment> OfferedMemory::SegmentAt(CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  CUresult result = driver_->MemGetAddressRange(&base, &size, address);
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError(driver_->Describe("cuMemGetAddressRange", result));
  }
  OfferedSegment segment;
  segment.offset = address - base;
  segment.allocation = size;
  result = driver_->IpcGetMemHandle(&segment.handle, base);
  if (result == CUDA_SUCCESS) return segment;
  // Memory from cuMemCreate has no CUDA IPC handle.
  if (driver_->MemRetainAllocationHandle == nullptr) {
    return absl::UnavailableError(driver_->Describe("cuIpcGetMemHandle", result));
  }
  CUmemGenericAllocationHandle handle = 0;
  result = driver_->MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(base));
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError(driver_->Describe("cuMemRetainAllocationHandle", result));
  }
  segment.kind = OfferedSegment::Kind::kDescriptor;
  segment.index = static_cast<uint32_t>(handles_.size());
  handles_.push_back(handle);
  CUmemAllocationProp properties{};
  result = driver_->MemGetAllocationPropertiesFromHandle(&properties, handle);
  if (result != CUDA_SUCCESS ||
      (properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return absl::UnavailableError("the allocation was made without POSIX file descriptor handles");
  }
  return segment;
}

PeerOffer OfferedMemory::Publish(Epoch epoch) {
  PeerOffer offer{epoch, NodeIdentity(), "", tensors_};
  if (handles_.empty()) return offer;
  auto server = DescriptorServer::Start([this](uint32_t index) { return Export(index); });
  if (!server.ok()) {
    // Targets find no server and do not map the memory: the source sends these bytes.
    REWIRE_WARN("share device memory inside the node: %s (members send its bytes instead)",
                std::string(server.status().message()).c_str());
    return offer;
  }
  server_ = std::move(*server);
  offer.server = server_->name();
  return offer;
}

UniqueFd OfferedMemory::Export(uint32_t index) const {
  int fd = -1;
  if (index >= handles_.size() || driver_->CtxSetCurrent(context_) != CUDA_SUCCESS ||
      driver_->MemExportToShareableHandle(
          &fd, handles_[index], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS) {
    return UniqueFd();
  }
  return UniqueFd(fd);
}

}  // namespace rewire::state
