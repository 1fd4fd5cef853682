// The exports for memory, registrations, windows and user-made operators. Thread-safe; see nccl.h.

#include <cstring>

#include "tests/simgpu/nccl/api.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/group.h"

using simnccl::CheckComm;
using simnccl::CheckReady;
using simnccl::Fail;

extern "C" {

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  if (ptr == nullptr || size == 0) {
    return Fail(ncclInvalidArgument, "MemAlloc : ptr is NULL or size is 0");
  }
  const simnccl::Driver* driver = nullptr;
  SIMNCCL_TRY(simnccl::Driver::Get(&driver));
  uint64_t pointer = 0;
  SIMNCCL_CU(driver->MemAlloc(&pointer, size));
  *ptr = reinterpret_cast<void*>(pointer);
  return ncclSuccess;
}

ncclResult_t pncclMemFree(void* ptr) {
  if (ptr == nullptr) return ncclSuccess;
  const simnccl::Driver* driver = nullptr;
  SIMNCCL_TRY(simnccl::Driver::Get(&driver));
  SIMNCCL_CU(driver->MemFree(reinterpret_cast<uint64_t>(ptr)));
  return ncclSuccess;
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  SIMNCCL_TRY(CheckComm(comm, "CommRegister", "comm"));
  if (buff == nullptr || size == 0 || handle == nullptr) {
    return Fail(ncclInvalidArgument, "CommRegister : an argument is NULL or 0");
  }
  SIMNCCL_TRY(CheckReady(comm));
  auto* registration = new simnccl::Registration{buff, size};
  rewire::MutexLock lock(&comm->mutex);
  comm->registrations.insert(registration);
  *handle = registration;
  return ncclSuccess;
}

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  SIMNCCL_TRY(CheckComm(comm, "CommDeregister", "comm"));
  auto* registration = static_cast<simnccl::Registration*>(handle);
  rewire::MutexLock lock(&comm->mutex);
  if (comm->registrations.erase(registration) == 0) {
    return Fail(ncclInvalidUsage, "CommDeregister : unknown handle");
  }
  delete registration;
  return ncclSuccess;
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* window,
                                     int flags) {
  SIMNCCL_TRY(CheckComm(comm, "CommWindowRegister", "comm"));
  if (buff == nullptr || size == 0 || window == nullptr) {
    return Fail(ncclInvalidArgument, "CommWindowRegister : an argument is NULL or 0");
  }
  if (flags != NCCL_WIN_DEFAULT && flags != NCCL_WIN_COLL_SYMMETRIC) {
    return Fail(ncclInvalidArgument, "CommWindowRegister : invalid flags %d", flags);
  }
  return simnccl::InGroup([&] {
    SIMNCCL_TRY(CheckReady(comm));
    *window = nullptr;
    simnccl::Job job;
    job.comm = comm;
    job.order = comm;
    job.run = [=]() -> ncclResult_t {
      std::vector<uint64_t> sizes(comm->nranks);
      sizes[comm->rank] = size;
      SIMNCCL_TRY(
          comm->bootstrap.AllGather(sizes.data(), sizeof(uint64_t), simnccl::PatienceOf(comm)));
      for (const uint64_t other : sizes) {
        if (other != size && flags == NCCL_WIN_COLL_SYMMETRIC) {
          return Fail(ncclInvalidArgument, "CommWindowRegister : sizes differ between ranks");
        }
      }
      auto* made = new ncclWindow_vidmem{buff, size};
      rewire::MutexLock lock(&comm->mutex);
      comm->windows.insert(made);
      *window = made;
      return ncclSuccess;
    };
    return simnccl::AddJob(std::move(job), comm->config.blocking);
  });
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  SIMNCCL_TRY(CheckComm(comm, "CommWindowDeregister", "comm"));
  if (window == nullptr) return ncclSuccess;
  rewire::MutexLock lock(&comm->mutex);
  if (comm->windows.erase(window) == 0) {
    return Fail(ncclInvalidUsage, "CommWindowDeregister : unknown window");
  }
  delete window;
  return ncclSuccess;
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                       ncclScalarResidence_t residence, ncclComm_t comm) {
  SIMNCCL_TRY(CheckComm(comm, "RedOpCreatePreMulSum", "comm"));
  SIMNCCL_TRY(CheckReady(comm));
  const size_t bytes = simnccl::ElementBytes(type);
  if (op == nullptr || scalar == nullptr || bytes == 0) {
    return Fail(ncclInvalidArgument, "RedOpCreatePreMulSum : an argument is NULL or invalid");
  }
  simnccl::Operator made;
  made.scaled = true;
  if (residence == ncclScalarHostImmediate) {
    std::memcpy(&made.scalar, scalar, bytes);
  } else if (residence == ncclScalarDevice) {
    made.device_scalar = scalar;
  } else {
    return Fail(ncclInvalidArgument, "RedOpCreatePreMulSum : invalid residence %d", residence);
  }
  rewire::MutexLock lock(&comm->mutex);
  const int number = comm->next_operator++;
  comm->operators[number] = made;
  comm->operator_types[number] = type;
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  SIMNCCL_TRY(CheckComm(comm, "RedOpDestroy", "comm"));
  rewire::MutexLock lock(&comm->mutex);
  if (comm->operators.erase(op) == 0) {
    return Fail(ncclInvalidArgument, "RedOpDestroy : operator %d is not valid", op);
  }
  comm->operator_types.erase(op);
  return ncclSuccess;
}

}  // extern "C"

SIMNCCL_ALIAS(ncclMemAlloc);
SIMNCCL_ALIAS(ncclMemFree);
SIMNCCL_ALIAS(ncclCommRegister);
SIMNCCL_ALIAS(ncclCommDeregister);
SIMNCCL_ALIAS(ncclCommWindowRegister);
SIMNCCL_ALIAS(ncclCommWindowDeregister);
SIMNCCL_ALIAS(ncclRedOpCreatePreMulSum);
SIMNCCL_ALIAS(ncclRedOpDestroy);
