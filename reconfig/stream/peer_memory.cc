// Sharing device memory inside a node; see peer_memory.h.
#include "reconfig/stream/peer_memory.h"

#include <unistd.h>

#include <fstream>

#include "reconfig/base/bytes.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire {
namespace {

constexpr size_t kEncodedTensor = 4 + 8 + 8 + CU_IPC_HANDLE_SIZE;

absl::StatusOr<const CudaDriver*> DriverIn(CUcontext context) {
  std::string error;
  const CudaDriver* const driver = CudaDriver::Get(&error);
  if (driver == nullptr) return absl::UnavailableError(error);
  const CUresult result = driver->CtxSetCurrent(context);
  if (result == CUDA_SUCCESS) return driver;
  return absl::InternalError(driver->Describe("cuCtxSetCurrent", result));
}

}  // namespace

std::string NodeIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // Process ids, by which memory is found, mean the same only inside one namespace.
  char space[64] = {};
  if (boot.empty() || readlink("/proc/self/ns/pid", space, sizeof space - 1) <= 0) return "";
  return boot + " " + space;
}

std::string EncodePeerOffer(const PeerOffer& offer) {
  ByteWriter out;
  out.Put(offer.epoch);
  out.PutString(offer.node);
  out.Put(static_cast<uint32_t>(offer.tensors.size()));
  for (const OfferedTensor& t : offer.tensors) {
    out.Put(t.tensor);
    out.Put(t.bytes);
    out.Put(t.offset);
    out.PutRaw({t.handle.reserved, CU_IPC_HANDLE_SIZE});
  }
  return out.Take();
}

PeerOffer DecodePeerOffer(std::string_view bytes) {
  PeerOffer offer;
  ByteReader in(bytes);
  offer.epoch = in.Get<Epoch>();
  offer.node = std::string(in.GetString());
  for (uint32_t left = in.GetCount(kEncodedTensor); left > 0 && in.ok(); --left) {
    OfferedTensor t;
    t.tensor = in.Get<uint32_t>();
    t.bytes = in.Get<uint64_t>();
    t.offset = in.Get<uint64_t>();
    const std::string_view handle = in.Raw(CU_IPC_HANDLE_SIZE);
    if (!in.ok()) break;
    handle.copy(t.handle.reserved, CU_IPC_HANDLE_SIZE);
    offer.tensors.push_back(t);
  }
  if (!in.ok()) return {};
  return offer;
}

absl::StatusOr<OfferedTensor> OfferPlace(uint32_t tensor, const StatePlace& place, uint64_t bytes) {
  if (place.kind != MemoryKind::kDevice || bytes == 0) {
    return absl::FailedPreconditionError("not device memory");
  }
  const absl::StatusOr<const CudaDriver*> driver = DriverIn(place.context);
  if (!driver.ok()) return driver.status();
  OfferedTensor offered{tensor, bytes, 0, {}};
  const auto address = reinterpret_cast<CUdeviceptr>(place.data);
  CUdeviceptr base = 0;
  size_t size = 0;
  CUresult result = (*driver)->MemGetAddressRange(&base, &size, address);
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError((*driver)->Describe("cuMemGetAddressRange", result));
  }
  offered.offset = address - base;
  result = (*driver)->IpcGetMemHandle(&offered.handle, base);
  if (result == CUDA_SUCCESS) return offered;
  return absl::UnavailableError((*driver)->Describe("cuIpcGetMemHandle", result));
}

absl::StatusOr<StatePlace> PeerMappings::Open(const OfferedTensor& offered, CUcontext context) {
  if (context_ != nullptr && context_ != context) {
    return absl::UnimplementedError("state in the memory of more than one device");
  }
  const absl::StatusOr<const CudaDriver*> driver = DriverIn(context);
  if (!driver.ok()) return driver.status();
  context_ = context;
  const std::string handle(offered.handle.reserved, CU_IPC_HANDLE_SIZE);
  auto found = mapped_.find(handle);
  if (found == mapped_.end()) {
    CUdeviceptr base = 0;
    const CUresult result =
        (*driver)->IpcOpenMemHandle(&base, offered.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
      return absl::UnavailableError((*driver)->Describe("cuIpcOpenMemHandle", result));
    }
    found = mapped_.emplace(handle, base).first;
  }
  // What the source says of its memory is checked against what was mapped.
  CUdeviceptr base = 0;
  size_t size = 0;
  if ((*driver)->MemGetAddressRange(&base, &size, found->second) == CUDA_SUCCESS &&
      (offered.offset > size || offered.bytes > size - offered.offset)) {
    return absl::DataLossError("an offered tensor does not lie inside its allocation");
  }
  return StatePlace{MemoryKind::kDevice, reinterpret_cast<char*>(found->second) + offered.offset,
                    context};
}

void PeerMappings::CloseAll() {
  if (mapped_.empty()) return;
  const absl::StatusOr<const CudaDriver*> driver = DriverIn(context_);
  for (const auto& [handle, base] : mapped_) {
    if (driver.ok()) (*driver)->IpcCloseMemHandle(base);
  }
  mapped_.clear();
}

}  // namespace rewire
