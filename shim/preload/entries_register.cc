// The entries for buffers, windows and operators of a communicator. Each forwards the call and
// records the registration for replay on the next generation. Called on the application's threads.
#include <cstring>

#include "rewire_entries.h"
#include "shim/preload/issue.h"

namespace rewire::shim {

namespace {

// Returns the generation for a call that NCCL must see inside the thread's group, or nullptr when
// the communicator has no open generation.
Generation* GenerationFor(VirtualCommunicator* comm, const Inside& inside) {
  const GroupUse* use = FindUse(Slot()->group, comm);
  Generation* generation = use != nullptr ? use->generation : inside.generation();
  if (generation == nullptr ||
      generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
    return nullptr;
  }
  return generation;
}

ncclResult_t Unusable(const Inside& inside) {
  return inside.generation() == nullptr ? ncclInvalidUsage
                                        : Failed(*inside.generation(), ncclInternalError);
}

// Calls NCCL with the current generation's value of a handle, and removes the record.
template <typename Call>
ncclResult_t Deregister(ncclComm_t handle, RegistrationKind kind, uint64_t registered,
                        Call&& call) {
  VirtualCommunicator* comm = Ours(handle);
  if (comm == nullptr) {
    const ncclResult_t refused = Foreign(handle);
    return refused != ncclSuccess ? refused : call(handle, registered);
  }
  const Inside inside(comm);
  Generation* generation = GenerationFor(comm, inside);
  if (generation == nullptr) return Unusable(inside);
  const auto registration = comm->registrations.Find(kind, registered);
  const Calling calling = CallingOn(comm, generation);
  // NCCL rejects an unknown handle.
  if (!registration) return call(generation->Real(), registered);
  const auto real = generation->values.Get(registration->index);
  const ncclResult_t result = real ? call(generation->Real(), *real) : ncclSuccess;
  if (Taken(result)) comm->registrations.Remove(kind, registered);
  return Judged(*generation, result);
}

size_t ScalarBytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

namespace entry {

ncclResult_t CommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  VirtualCommunicator* ours = Ours(comm);
  if (ours == nullptr || handle == nullptr) {
    const ncclResult_t refused = ours == nullptr ? Foreign(comm) : ncclInvalidArgument;
    return refused != ncclSuccess ? refused : Real()->CommRegister(comm, buff, size, handle);
  }
  const ncclResult_t first = AwaitFirst(ours);
  if (first != ncclSuccess) return first;
  const Inside inside(ours);
  Generation* generation = GenerationFor(ours, inside);
  if (generation == nullptr) return Unusable(inside);
  const Calling calling = CallingOn(ours, generation);
  const ncclResult_t result = Real()->CommRegister(generation->Real(), buff, size, handle);
  // NCCL returns no handle when registration is off.
  if (result != ncclSuccess || *handle == nullptr) return Judged(*generation, result);
  Registration r;
  r.kind = RegistrationKind::kBuffer;
  r.index = ours->registrations.NextIndex();
  r.handle = reinterpret_cast<uint64_t>(*handle);
  r.address = buff;
  r.size = size;
  if (!generation->values.Set(r.index, r.handle)) return ncclSystemError;
  *handle = reinterpret_cast<void*>(ours->registrations.Add(r));
  return result;
}

ncclResult_t CommDeregister(const ncclComm_t comm, void* handle) {
  return Deregister(comm, RegistrationKind::kBuffer, reinterpret_cast<uint64_t>(handle),
                    [](ncclComm_t real, uint64_t value) {
                      return Real()->CommDeregister(real, reinterpret_cast<void*>(value));
                    });
}

ncclResult_t CommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                int winFlags) {
  VirtualCommunicator* ours = Ours(comm);
  if (ours == nullptr || win == nullptr) {
    const ncclResult_t refused = ours == nullptr ? Foreign(comm) : ncclInvalidArgument;
    return refused != ncclSuccess ? refused
                                  : Real()->CommWindowRegister(comm, buff, size, win, winFlags);
  }
  const ncclResult_t first = AwaitFirst(ours);
  if (first != ncclSuccess) return first;
  const Inside inside(ours);
  Generation* generation = GenerationFor(ours, inside);
  if (generation == nullptr) return Unusable(inside);
  Registration r;
  r.kind = RegistrationKind::kWindow;
  r.index = ours->registrations.NextIndex();
  r.address = buff;
  r.size = size;
  r.flags = winFlags;
  *win = nullptr;
  uint64_t* const value = generation->values.Reserve(r.index);
  GroupState* const group = Slot()->group_depth > 0 ? ThisGroup(Slot()) : nullptr;
  if (value == nullptr || (Slot()->group_depth > 0 && group == nullptr)) return ncclSystemError;
  HoldInOpenGroup(generation);
  const Calling calling = CallingOn(ours, generation);
  const ncclResult_t result = Real()->CommWindowRegister(
      generation->Real(), buff, size, reinterpret_cast<ncclWindow_t*>(value), winFlags);
  if (!Taken(result)) return Judged(*generation, result);
  ours->registrations.AddLater(r, win);
  if (group != nullptr) {
    group->windows.push_back(ours);
  } else if (ours->recipe.blocking) {
    ours->registrations.TakeStored(generation->values);
  }
  return result;
}

ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return Deregister(comm, RegistrationKind::kWindow, reinterpret_cast<uint64_t>(win),
                    [](ncclComm_t real, uint64_t value) {
                      return Real()->CommWindowDeregister(real,
                                                          reinterpret_cast<ncclWindow_t>(value));
                    });
}

ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                  ncclScalarResidence_t residence, ncclComm_t comm) {
  VirtualCommunicator* ours = Ours(comm);
  if (ours == nullptr || op == nullptr || scalar == nullptr) {
    const ncclResult_t refused = ours == nullptr ? Foreign(comm) : ncclInvalidArgument;
    return refused != ncclSuccess
               ? refused
               : Real()->RedOpCreatePreMulSum(op, scalar, datatype, residence, comm);
  }
  const ncclResult_t first = AwaitFirst(ours);
  if (first != ncclSuccess) return first;
  const Inside inside(ours);
  Generation* generation = GenerationFor(ours, inside);
  if (generation == nullptr) return Unusable(inside);
  ncclRedOp_t made = ncclSum;
  const Calling calling = CallingOn(ours, generation);
  const ncclResult_t result =
      Real()->RedOpCreatePreMulSum(&made, scalar, datatype, residence, generation->Real());
  if (result != ncclSuccess) return Judged(*generation, result);
  Registration r;
  r.kind = RegistrationKind::kOperator;
  r.index = ours->registrations.NextIndex();
  // Operators are numbers within a communicator, and two generations may have equal numbers.
  r.handle = static_cast<uint64_t>(kFirstOperator) + r.index;
  r.type = datatype;
  r.residence = residence;
  // NCCL reads a device scalar when the collective runs, so the scalar's address is recorded.
  if (residence == ncclScalarHostImmediate) memcpy(r.scalar, scalar, ScalarBytes(datatype));
  r.address = residence == ncclScalarHostImmediate ? nullptr : scalar;
  if (!generation->values.Set(r.index, static_cast<uint64_t>(made))) return ncclSystemError;
  *op = static_cast<ncclRedOp_t>(ours->registrations.Add(r));
  return result;
}

ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return Deregister(comm, RegistrationKind::kOperator, static_cast<uint64_t>(op),
                    [](ncclComm_t real, uint64_t value) {
                      return Real()->RedOpDestroy(static_cast<ncclRedOp_t>(value), real);
                    });
}

}  // namespace entry
}  // namespace rewire::shim
