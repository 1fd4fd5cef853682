// The entries that return addresses which outlive the call, use state that is stored in a window,
// or take a communicator's memory away. Each forwards the call and pins the communicator, because
// no new generation could replace the old one. Called on the application's threads.
#include "rewire_entries.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/issue.h"
#include "shim/preload/pool.h"

namespace rewire::shim {

namespace {

void AddAndTell(VirtualCommunicator* comm, Pin pin) {
  if (AddPin(comm, pin)) TellPinned(comm);
}

void RemoveAndTell(VirtualCommunicator* comm, Pin pin) {
  if (RemovePin(comm, pin)) TellPinned(comm);
}

void PinIfOurs(ncclComm_t handle, Pin pin) {
  if (VirtualCommunicator* comm = Ours(handle)) AddAndTell(comm, pin);
}

// Returns the real window of the window that the application holds.
ncclWindow_t RealWindow(VirtualCommunicator* comm, const Generation& generation,
                        ncclWindow_t window) {
  const auto registration =
      comm->registrations.Find(RegistrationKind::kWindow, reinterpret_cast<uint64_t>(window));
  if (!registration) return window;
  const auto real = generation.values.Get(registration->index);
  return real ? reinterpret_cast<ncclWindow_t>(*real) : window;
}

// For calls that name a window and no communicator.
ncclWindow_t PinWindow(ncclWindow_t window) {
  ncclWindow_t real = window;
  VisitCommunicators([&](VirtualCommunicator* comm) {
    if (!comm->registrations.Find(RegistrationKind::kWindow, reinterpret_cast<uint64_t>(window))) {
      return false;
    }
    AddAndTell(comm, Pin::kWindowPointer);
    const Inside inside(comm);
    if (inside.generation() != nullptr) real = RealWindow(comm, *inside.generation(), window);
    return true;
  });
  return real;
}

}  // namespace

namespace entry {

ncclResult_t DevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* reqs,
                           ncclDevComm_t* outDevComm) {
  PinIfOurs(comm, Pin::kDeviceComm);
  return Translate<ncclResult_t>(comm, [&](const Target& target) {
    return Real()->DevCommCreate(target.comm, reqs, outDevComm);
  });
}

ncclResult_t WinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  PinIfOurs(comm, Pin::kWindowPointer);
  VirtualCommunicator* ours = Ours(comm);
  return Translate<ncclResult_t>(comm, [&](const Target& target) {
    return Real()->WinGetUserPtr(
        target.comm, ours == nullptr ? win : RealWindow(ours, *target.generation, win), outUserPtr);
  });
}

ncclResult_t GetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** outPtr) {
  return Real()->GetLsaMultimemDevicePointer(PinWindow(window), offset, outPtr);
}
ncclResult_t GetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                      ncclMultimemHandle_t multimem, void** outPtr) {
  return Real()->GetMultimemDevicePointer(PinWindow(window), offset, multimem, outPtr);
}
ncclResult_t GetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** outPtr) {
  return Real()->GetLsaDevicePointer(PinWindow(window), offset, lsaRank, outPtr);
}
ncclResult_t GetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr) {
  return Real()->GetPeerDevicePointer(PinWindow(window), offset, peer, outPtr);
}

ncclResult_t GetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId* leId,
                                     size_t* leOffset) {
  return Real()->GetMultimemDeviceLeInfo(PinWindow(window), offset, leId, leOffset);
}
ncclResult_t GetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
                                ncclCftLeId* leId, size_t* leOffset) {
  return Real()->GetCftDeviceLeInfo(PinWindow(window), offset, peerCft, cftTeam, leId, leOffset);
}
ncclResult_t GetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld,
                                 ncclCftLeId* leId, size_t* leOffset) {
  return Real()->GetPeerDeviceLeInfo(PinWindow(window), offset, peerWorld, leId, leOffset);
}

// A new generation would take the memory that the program wants back.
ncclResult_t CommSuspend(ncclComm_t comm, int flags) {
  VirtualCommunicator* ours = Ours(comm);
  const ncclResult_t first = ours == nullptr ? ncclSuccess : AwaitFirst(ours);
  if (first != ncclSuccess) return first;
  const bool pinned = ours != nullptr && AddPin(ours, Pin::kSuspended);
  if (pinned) TellPinned(ours);
  const ncclResult_t result = Translate<ncclResult_t>(
      comm, [&](const Target& target) { return Real()->CommSuspend(target.comm, flags); });
  if (pinned && !Taken(result)) RemoveAndTell(ours, Pin::kSuspended);
  return result;
}

ncclResult_t CommResume(ncclComm_t comm) {
  const ncclResult_t result = Translate<ncclResult_t>(
      comm, [&](const Target& target) { return Real()->CommResume(target.comm); });
  VirtualCommunicator* ours = Ours(comm);
  if (ours != nullptr && Taken(result)) RemoveAndTell(ours, Pin::kSuspended);
  return result;
}

ncclResult_t PutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                       unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  PinIfOurs(comm, Pin::kSignals);
  VirtualCommunicator* ours = Ours(comm);
  return Translate<ncclResult_t>(comm, [&](const Target& target) {
    const ncclWindow_t window =
        ours == nullptr ? peerWin : RealWindow(ours, *target.generation, peerWin);
    return Real()->PutSignal(localbuff, count, datatype, peer, window, peerWinOffset, sigIdx, ctx,
                             flags, target.comm, stream);
  });
}

ncclResult_t Signal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                    cudaStream_t stream) {
  PinIfOurs(comm, Pin::kSignals);
  return Translate<ncclResult_t>(comm, [&](const Target& target) {
    return Real()->Signal(peer, sigIdx, ctx, flags, target.comm, stream);
  });
}

ncclResult_t WaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
                        cudaStream_t stream) {
  PinIfOurs(comm, Pin::kSignals);
  return Translate<ncclResult_t>(comm, [&](const Target& target) {
    return Real()->WaitSignal(nDesc, signalDescs, target.comm, stream);
  });
}

}  // namespace entry
}  // namespace rewire::shim
