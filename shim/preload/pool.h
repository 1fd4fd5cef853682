// The memory of virtual communicators and generations. For the shim and ShimServices.
//
// Communicators come from a pool that is never unmapped, so the magic of a stale handle can always
// be read. Generations that are no longer published wait here until no thread is inside; no caller
// waits for them. Thread-safe; slow paths only.
#pragma once

#include <functional>

#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

// Returns a new communicator with magic kOpen, or nullptr without memory.
VirtualCommunicator* NewCommunicator() noexcept;
// Makes the handle stale. Frees the communicator and its generation after the last thread has left.
// taken: the generation, if it was taken out of the communicator before.
void DropCommunicator(VirtualCommunicator* comm, Generation* taken = nullptr) noexcept;

Generation* NewGeneration(uint64_t epoch, int ranks, int rank) noexcept;
Generation* Publish(VirtualCommunicator* comm, Generation* next) noexcept;
bool Quiesce(Generation* generation, int64_t timeout_ms) noexcept;
// The same for a thread whose open group counts `mine` times in Generation::fixed.
bool QuiesceOthers(const Generation* generation, uint64_t mine, int64_t timeout_ms) noexcept;
void FreeGeneration(Generation* generation) noexcept;
// Takes the communicator's generation away and never frees it.
void KeepGeneration(VirtualCommunicator* comm) noexcept;
uint64_t Pledge(VirtualCommunicator* comm, uint64_t stop_at) noexcept;

// Frees everything that no thread is inside any more. The functions above call Sweep.
void Sweep() noexcept;
// For tests: the number of entries that wait for threads to leave.
int Waiting() noexcept;

bool VisitCommunicators(const std::function<bool(VirtualCommunicator*)>& visit) noexcept;
// Invalidates all communicators in the child of a fork, which cannot use them.
void ForgetCommunicators() noexcept;

}  // namespace rewire::shim
