#include "bench/trainer/communicator.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

extern "C" {
#define TRAINER_NCCL(name, result, arguments) result name arguments;
#include "bench/trainer/nccl_functions.def"
#undef TRAINER_NCCL
}

namespace rewire::trainer {
namespace {

void* Pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }

absl::Status Error(const char* call, ncclResult_t result) {
  return absl::UnavailableError(absl::StrCat(call, ": ", ncclGetErrorString(result)));
}

}  // namespace

absl::StatusOr<ncclUniqueId> Communicator::MintId() {
  ncclUniqueId id;
  if (const ncclResult_t r = ncclGetUniqueId(&id); r != ncclSuccess) {
    return Error("ncclGetUniqueId", r);
  }
  return id;
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const Device& device,
                                                                   const ncclUniqueId& id,
                                                                   int slots, int slot) {
  std::unique_ptr<Communicator> c(new Communicator(device));
  const ncclResult_t r = ncclCommInitRank(&c->comm_, slots, id, slot);
  if (r != ncclSuccess) {
    c->comm_ = nullptr;
    return Error("ncclCommInitRank", r);
  }
  return c;
}

Communicator::~Communicator() {
  if (comm_ == nullptr) return;
  if (failed_) {
    ncclCommAbort(comm_);
  } else {
    ncclCommDestroy(comm_);
  }
}

absl::Status Communicator::Check(const char* call, ncclResult_t result) {
  if (result == ncclSuccess) return absl::OkStatus();
  failed_ = true;
  return Error(call, result);
}

absl::Status Communicator::AllReduce(CUdeviceptr data, size_t count, ncclDataType_t type) {
  return Check("ncclAllReduce", ncclAllReduce(Pointer(data), Pointer(data), count, type, ncclSum,
                                              comm_, device_.stream()));
}

absl::Status Communicator::ReduceScatter(CUdeviceptr data, CUdeviceptr result, size_t chunk,
                                         ncclDataType_t type) {
  return Check("ncclReduceScatter", ncclReduceScatter(Pointer(data), Pointer(result), chunk, type,
                                                      ncclSum, comm_, device_.stream()));
}

absl::Status Communicator::AllGather(CUdeviceptr data, size_t chunk, size_t element_bytes, int slot,
                                     ncclDataType_t type) {
  const CUdeviceptr mine = data + static_cast<size_t>(slot) * chunk * element_bytes;
  return Check("ncclAllGather",
               ncclAllGather(Pointer(mine), Pointer(data), chunk, type, comm_, device_.stream()));
}

absl::Status Communicator::GroupStart() { return Check("ncclGroupStart", ncclGroupStart()); }
absl::Status Communicator::GroupEnd() { return Check("ncclGroupEnd", ncclGroupEnd()); }

absl::Status Communicator::Wait() {
  const absl::Status waited = device_.Synchronize();
  ncclResult_t async = ncclSuccess;
  REWIRE_RETURN_IF_ERROR(Check("ncclCommGetAsyncError", ncclCommGetAsyncError(comm_, &async)));
  REWIRE_RETURN_IF_ERROR(Check("the communicator", async));
  return waited;
}

}  // namespace rewire::trainer
