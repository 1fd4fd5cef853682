// Exports allocations, and maps the allocations that other members offer; see peer_memory.h.
#include "reconfig/state/stream/peer_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/log.h"

namespace rewire::state {
namespace {

// Checks that adjacent segments meet where one allocation ends and the next allocation begins.
absl::Status CheckSegments(const OfferedTensor& offered) {
  using Kind = OfferedSegment::Kind;
  const std::vector<OfferedSegment>& all = offered.segments;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool joins = i == 0 || (all[i].offset == 0 &&
                                  all[i - 1].offset + all[i - 1].bytes == all[i - 1].allocation);
    const bool inside =
        all[i].offset <= all[i].allocation && all[i].bytes <= all[i].allocation - all[i].offset;
    if (!joins || !inside || (all.size() > 1 && all[i].kind == Kind::kHandle)) {
      return absl::DataLossError(absl::StrCat("map offered tensor ", offered.tensor, ": segment=",
                                              i, ": the segments are not one contiguous range"));
    }
  }
  if (all.empty()) {
    return absl::DataLossError(
        absl::StrCat("map offered tensor ", offered.tensor, ": segments=0: must be at least 1"));
  }
  return absl::OkStatus();
}

}  // namespace

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

absl::Status PeerMappings::Check(const char* call, CUresult result) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(driver_->Describe(call, result));
}

absl::Status PeerMappings::UseDevice(CUcontext context) {
  if (context_ != nullptr && context_ != context) {
    return absl::UnimplementedError(
        "map offered memory: state in the memory of more than one device");
  }
  std::string error;
  driver_ = CudaDriver::Get(&error);
  if (driver_ == nullptr) return absl::UnavailableError(error);
  context_ = context;
  return Check("cuCtxSetCurrent", driver_->CtxSetCurrent(context));
}

absl::StatusOr<StatePlace> PeerMappings::Open(const OfferedTensor& offered,
                                              const std::string& server, CUcontext context,
                                              Time deadline) {
  if (absl::Status s = CheckSegments(offered); !s.ok()) return s;
  if (absl::Status s = UseDevice(context); !s.ok()) return s;
  const OfferedSegment& first = offered.segments[0];
  const absl::StatusOr<CUdeviceptr> base = first.kind == OfferedSegment::Kind::kHandle
                                               ? OpenHandle(first)
                                               : OpenDescriptors(offered, server, deadline);
  if (!base.ok()) return base.status();
  return StatePlace{MemoryKind::kDevice, reinterpret_cast<char*>(*base) + first.offset, context};
}

absl::StatusOr<CUdeviceptr> PeerMappings::OpenHandle(const OfferedSegment& segment) {
  const std::string handle(segment.handle.reserved, CU_IPC_HANDLE_SIZE);
  auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) {
    CUdeviceptr base = 0;
    const absl::Status s =
        Check("cuIpcOpenMemHandle",
              driver_->IpcOpenMemHandle(&base, segment.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (!s.ok()) return s;
    found = by_handle_.emplace(handle, base).first;
  }
  // The offset and size that the source states must lie inside the mapped allocation.
  CUdeviceptr base = 0;
  size_t size = 0;
  if (driver_->MemGetAddressRange(&base, &size, found->second) == CUDA_SUCCESS &&
      (segment.offset > size || segment.bytes > size - segment.offset)) {
    return absl::DataLossError(
        absl::StrCat("map offered memory: offset=", segment.offset, " bytes=", segment.bytes,
                     ": must lie inside the allocation of ", size, " bytes"));
  }
  return found->second;
}

absl::StatusOr<CUdeviceptr> PeerMappings::OpenDescriptors(const OfferedTensor& offered,
                                                          const std::string& server,
                                                          Time deadline) {
  if (driver_->MemImportFromShareableHandle == nullptr) {
    return absl::UnimplementedError(
        "map offered memory: the CUDA driver has no virtual memory management");
  }
  auto client = DescriptorClient::Connect(server, deadline);
  if (!client.ok()) return client.status();
  Range range;
  for (const OfferedSegment& segment : offered.segments) range.bytes += segment.allocation;
  absl::Status status =
      Check("cuMemAddressReserve", driver_->MemAddressReserve(&range.begin, range.bytes, 0, 0, 0));
  if (!status.ok()) return status;
  for (const OfferedSegment& segment : offered.segments) {
    if (status.ok()) status = MapSegment(segment, &*client, deadline, &range);
  }
  CUdevice device = 0;
  if (status.ok()) status = Check("cuCtxGetDevice", driver_->CtxGetDevice(&device));
  if (status.ok()) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    status = Check("cuMemSetAccess", driver_->MemSetAccess(range.begin, range.bytes, &access, 1));
  }
  if (!status.ok()) {
    Close(range);
    return status;
  }
  ranges_.push_back(range);
  return range.begin;
}

absl::Status PeerMappings::MapSegment(const OfferedSegment& segment, DescriptorClient* client,
                                      Time deadline, Range* range) {
  const absl::StatusOr<UniqueFd> fd = client->Ask(segment.index, deadline);
  if (!fd.ok()) return fd.status();
  CUmemGenericAllocationHandle handle = 0;
  absl::Status status =
      Check("cuMemImportFromShareableHandle",
            driver_->MemImportFromShareableHandle(
                &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd->get())),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  if (!status.ok()) return status;
  status = Check("cuMemMap",
                 driver_->MemMap(range->begin + range->mapped, segment.allocation, 0, handle, 0));
  if (status.ok()) range->mapped += segment.allocation;
  driver_->MemRelease(handle);  // the mapping keeps the memory
  return status;
}

void PeerMappings::Close(const Range& range) {
  if (range.mapped > 0) driver_->MemUnmap(range.begin, range.mapped);
  driver_->MemAddressFree(range.begin, range.bytes);
}

void PeerMappings::CloseAll() {
  if (by_handle_.empty() && ranges_.empty()) return;
  if (driver_->CtxSetCurrent(context_) == CUDA_SUCCESS) {
    for (const auto& [handle, base] : by_handle_) driver_->IpcCloseMemHandle(base);
    for (const Range& range : ranges_) Close(range);
  }
  by_handle_.clear();
  ranges_.clear();
}

}  // namespace rewire::state
