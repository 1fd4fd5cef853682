// The memory of virtual communicators and generations.
//
// Communicators come from a pool that is never unmapped: a stale handle can always be asked for its
// magic. Generations that are published no more wait here until no thread is inside; nobody waits
// for them. Any thread; slow paths.
#pragma once

#include <functional>

#include "shim/virtual_communicator.h"

namespace rewire::shim {

// nullptr: no memory. Fresh, magic kOpen.
VirtualCommunicator* NewCommunicator() noexcept;
// Its generation (may be nullptr) and, when no thread is inside any more, the communicator itself.
// From here on its handle is stale.
void DropCommunicator(VirtualCommunicator* comm) noexcept;

Generation* NewGeneration(uint64_t epoch, int ranks, int rank) noexcept;
Generation* Publish(VirtualCommunicator* comm, Generation* next) noexcept;
bool Quiesce(Generation* generation, int64_t timeout_ms) noexcept;
void FreeGeneration(Generation* generation) noexcept;
uint64_t Pledge(VirtualCommunicator* comm, uint64_t stop_at) noexcept;

// Frees what can be freed by now; called by the functions above.
void Sweep() noexcept;
// How many generations wait for threads to leave. Tests.
int Waiting() noexcept;

// Calls visit for every open communicator until it returns true.
bool VisitCommunicators(const std::function<bool(VirtualCommunicator*)>& visit) noexcept;
// In the child of a fork: what the parent made cannot be used here.
void ForgetCommunicators() noexcept;

}  // namespace rewire::shim
