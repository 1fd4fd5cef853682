#include "shim/replay.h"

#include <bit>

#include "shim/real_nccl.h"
#include "shim/virtual_communicator.h"

namespace rewire::shim {

namespace {

ncclResult_t Again(Registration r, Generation* generation) {
  const RealNccl* real = Real();
  uint64_t value = 0;
  ncclResult_t result = ncclSuccess;
  switch (r.kind) {
    case RegistrationKind::kBuffer: {
      void* handle = nullptr;
      result = real->CommRegister(generation->Real(), r.address, r.size, &handle);
      value = reinterpret_cast<uint64_t>(handle);
      break;
    }
    case RegistrationKind::kWindow: {
      ncclWindow_t window = nullptr;
      result = real->CommWindowRegister(generation->Real(), r.address, r.size, &window, r.flags);
      value = reinterpret_cast<uint64_t>(window);
      break;
    }
    case RegistrationKind::kOperator: {
      ncclRedOp_t op = ncclSum;
      void* scalar = r.residence == ncclScalarHostImmediate ? r.scalar : r.address;
      result = real->RedOpCreatePreMulSum(&op, scalar, r.type, r.residence, generation->Real());
      value = static_cast<uint64_t>(op);
      break;
    }
  }
  if (result != ncclSuccess) return result;
  return generation->values.Set(r.index, value) ? ncclSuccess : ncclSystemError;
}

}  // namespace

ncclResult_t ReplayRegistrations(VirtualCommunicator* comm, Generation* generation) noexcept {
  for (const Registration& r : comm->registrations.All()) {
    if (generation->values.Get(r.index)) continue;
    const ncclResult_t result = Again(r, generation);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

}  // namespace rewire::shim
