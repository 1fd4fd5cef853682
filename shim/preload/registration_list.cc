#include "shim/preload/registration_list.h"

#include <sched.h>

#include <algorithm>

#include "reconfig/base/clock.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "shim/preload/real_nccl.h"
#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

namespace {

// Replaces a real value that another registration has. Odd, so never an address.
uint64_t OwnNumber(uint32_t index) { return (uint64_t{index} << 1) | 1; }

ncclResult_t Again(const VirtualCommunicator* comm, Registration r, Generation* generation) {
  const Calling calling(comm->recipe.blocking, &generation->callers);
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
      uint64_t* const place = generation->values.Reserve(r.index);
      if (place == nullptr) return ncclSystemError;
      return real->CommWindowRegister(generation->Real(), r.address, r.size,
                                      reinterpret_cast<ncclWindow_t*>(place), r.flags);
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

// Waits until a non-blocking communicator takes the next call. A loss or the deadline of a build
// ends the wait. NCCL 2.28 and 2.30 return ncclSuccess for a window that is still in progress.
ncclResult_t Settled(const Generation* generation) {
  const auto build_ms = static_cast<int>(Settings::Get().build_ms());
  const Time deadline = Now() + milliseconds(build_ms);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
      return ncclRemoteError;
    }
    if (Now() >= deadline) {
      REWIRE_ERROR(
          "register a window on the new generation: a member did not take part within %d ms "
          "(REWIRE_BUILD_MS)",
          build_ms);
      return ncclRemoteError;
    }
    const ncclResult_t asked = [&] {
      const Calling calling(false, &generation->callers);
      return Real()->CommGetAsyncError(generation->Real(), &state);
    }();
    if (asked != ncclSuccess) return asked;
    if (state == ncclInProgress) sched_yield();
  }
  return state;
}

}  // namespace

uint64_t RegistrationList::Add(Registration registration) {
  MutexLock lock(&mutex_);
  return AddLocked(registration);
}

uint64_t RegistrationList::AddLocked(Registration registration) {
  for (const Registration& r : list_) {
    if (r.kind == registration.kind && r.handle == registration.handle) {
      registration.handle = OwnNumber(registration.index);
      break;
    }
  }
  list_.push_back(registration);
  return registration.handle;
}

void RegistrationList::AddLater(Registration registration, ncclWindow_t* window) {
  MutexLock lock(&mutex_);
  later_.push_back({registration, window});
  any_later_.store(true, std::memory_order_release);
}

void RegistrationList::TakeStored(const RealValues& values) {
  if (!any_later_.load(std::memory_order_acquire)) return;
  MutexLock lock(&mutex_);
  for (Later& later : later_) {
    later.registration.handle = values.Get(later.registration.index).value_or(0);
    if (later.registration.handle == 0) continue;
    *later.window = reinterpret_cast<ncclWindow_t>(AddLocked(later.registration));
  }
  later_.clear();
  any_later_.store(false, std::memory_order_release);
}

std::optional<Registration> RegistrationList::Find(RegistrationKind kind, uint64_t handle) const {
  MutexLock lock(&mutex_);
  for (const Registration& r : list_) {
    if (r.kind == kind && r.handle == handle) return r;
  }
  return std::nullopt;
}

bool RegistrationList::Remove(RegistrationKind kind, uint64_t handle) {
  MutexLock lock(&mutex_);
  const auto it = std::find_if(list_.begin(), list_.end(), [&](const Registration& r) {
    return r.kind == kind && r.handle == handle;
  });
  if (it == list_.end()) return false;
  list_.erase(it);
  return true;
}

std::vector<Registration> RegistrationList::All() const {
  MutexLock lock(&mutex_);
  return list_;
}

void RegistrationList::Clear() {
  MutexLock lock(&mutex_);
  list_.clear();
  later_.clear();
  any_later_.store(false, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
}

ncclResult_t ReplayLocal(VirtualCommunicator* comm, Generation* generation) noexcept {
  for (const Registration& r : comm->registrations.All()) {
    if (r.kind == RegistrationKind::kWindow || generation->values.Get(r.index)) continue;
    const ncclResult_t result = Again(comm, r, generation);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

bool Registers(VirtualCommunicator* comm, const Generation* generation) noexcept {
  const std::vector<Registration> all = comm->registrations.All();
  return std::any_of(all.begin(), all.end(), [&](const Registration& r) {
    return r.kind != RegistrationKind::kOperator && !generation->values.Get(r.index);
  });
}

ncclResult_t ReplayAll(VirtualCommunicator* comm, Generation* generation,
                       int group_depth) noexcept {
  for (const Registration& r : comm->registrations.All()) {
    if (generation->values.Get(r.index)) continue;
    const ncclResult_t result = Again(comm, r, generation);
    if (result != ncclSuccess && result != ncclInProgress) return result;
    if (comm->recipe.blocking || group_depth > 0) continue;
    const ncclResult_t settled = Settled(generation);
    if (settled != ncclSuccess) return settled;
  }
  return ncclSuccess;
}

}  // namespace rewire::shim
