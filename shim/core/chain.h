// The core's records of the virtual communicators of this process (Chains): for each communicator
// the current generation, those of decided swaps that the communicator has not passed yet, and the
// one built for the next epoch (Chain). For all parts of the core, on any thread.
//
// The application has one virtual communicator for each rank, so a communicator with several ranks
// in this process has several chains of one id. Each chain has its device and its cut. The id
// changes when an update boundary moves a group communicator to another group.
//
// A chain is made at the communicator's creation and held by shared_ptr, so a thread at a cut may
// outlive the application's destroy. A chain's lock and the lock of Chains are never held together,
// and neither is held across a call into NCCL.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/elastic/protocol/messages.h"
#include "reconfig/world/world.h"
#include "shim/core/device.h"
#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

// Returns the identity as 32 hexadecimal digits, for messages.
std::string Name(const CommunicatorId& id);
// Returns in words why a communicator cannot be swapped. pins: bits of Pin.
std::string DescribePins(uint32_t pins);
// Returns the text in memory that is valid until the process ends. Equal texts have one address.
// Thread-safe.
const char* KeepText(const std::string& text);
// The same for identities.
const CommunicatorId* KeepIdentity(const CommunicatorId& id);
// Returns whether the contexts may be of one device. An unknown context may be of any.
inline bool MayShareDevice(DeviceContext a, DeviceContext b) {
  return a == b || a == nullptr || b == nullptr;
}
// Returns whether CUDA graphs of the program use the communicator.
bool IsCaptured(const VirtualCommunicator& comm);

// One generation with the data that belongs to this generation alone. The code that destroys or
// aborts the generation frees the link.
struct Link {
  Generation* generation = nullptr;  // nullptr: the application has destroyed the generation
  // Names the generation in messages, also after its communicator has another identity. Of a
  // generation for another group: the identity that the communicator gets with the generation.
  CommunicatorId id;
  CommunicatorId first_id;  // Chain::first_id
  Epoch epoch = 0;
  uint32_t ranks = 0;
  uint32_t rank = 0;
  bool blocking = true;
  bool created_by_program = false;  // made by the program's own call, which may still run
  bool warmed = false;  // has run a real operation already, so none is needed before the cut
  // The cut of the decided swap to this generation.
  Cut cut;
  // The program's thread has begun the tiny operation, or has passed the cut or the boundary.
  bool begun = false;
  uint64_t host_waits = 0;
  DeviceContext context = nullptr;
  // Recorded after the last operation of the generation before this one. Made and freed with this
  // link, so that a swap makes nothing; the previous link only reads this event.
  DeviceEvent end_of_previous = nullptr;
  // Stream of an operation that NCCL's background thread may still launch. Freed with this link,
  // after the abort of the generation.
  cudaStream_t launching = nullptr;
  // Device memory of Rewire's own operations on the generation (beside_run.h).
  void* scratch = nullptr;
  DeviceEvent end = nullptr;  // the following link's end_of_previous, once known
  bool end_recorded = false;
  // CUDA graphs may launch kernels of this generation or wait for its event, or the end of its last
  // operation is unknown because of a capture. Complete when the generation goes out of use.
  bool captured = false;
  std::unique_ptr<Link> after;  // the next link in a list

  // The operation index at which the program's thread must act for the decided swap.
  [[nodiscard]] uint64_t NextIndex() const { return warmed ? cut.cut : cut.warm; }
};

// Frees what a link has on the device. The link's context must be current, and its generation gone.
void FreeHandles(Device* device, const Link& link);

// Thread-safe under `mutex`.
struct Chain {
  Chain(VirtualCommunicator* communicator, DeviceContext device_context)
      : comm(communicator),
        first_id(communicator->id()),
        blocking(communicator->recipe.blocking),
        context(device_context) {}

  VirtualCommunicator* const comm;
  // The identity at the creation. Names the communicator inside this process for as long as it
  // exists: its memory (MemoryLedger) and its generations that graphs use (Retirement).
  const CommunicatorId first_id;
  const bool blocking;
  const DeviceContext context;

  // Points to first_id, or to memory that is valid until the process ends. Changed under `mutex`.
  std::atomic<const CommunicatorId*> present_id{&first_id};

  Mutex mutex;
  uint32_t ranks REWIRE_GUARDED_BY(mutex) = 0;
  uint32_t rank REWIRE_GUARDED_BY(mutex) = 0;
  CondVar changed;
  // Set for a joiner whose generation is built but whose epoch has not come.
  bool not_entered REWIRE_GUARDED_BY(mutex) = false;
  // The pledge: no operation at or beyond the warm index before the decision about `built`.
  std::optional<Cut> pledged REWIRE_GUARDED_BY(mutex);
  uint64_t host_waits REWIRE_GUARDED_BY(mutex) = 0;  // during this pledge
  // nullptr: lost, closed, or a joiner that is not built yet.
  std::unique_ptr<Link> current REWIRE_GUARDED_BY(mutex);
  // Decided swaps that the program has not reached yet, in the order of their cuts.
  std::vector<std::unique_ptr<Link>> pending REWIRE_GUARDED_BY(mutex);
  // The generation of the epoch in preparation.
  std::unique_ptr<Link> built REWIRE_GUARDED_BY(mutex);
  // Set by a swap at a boundary: the next operation waits, on its stream, for this event of
  // current's.
  DeviceEvent wait_first REWIRE_GUARDED_BY(mutex) = nullptr;
  // Set by a swap at a boundary: the program's thread calls in at its first operation, because its
  // windows are made then.
  bool fresh REWIRE_GUARDED_BY(mutex) = false;
  bool awaits_build REWIRE_GUARDED_BY(mutex) = false;  // the first generation comes with a Build
  bool lost REWIRE_GUARDED_BY(mutex) = false;
  const char* lost_why REWIRE_GUARDED_BY(mutex) = nullptr;  // valid until the process ends
  // Why the last operation at a cut was refused; nullptr: it was not. Valid until the process ends.
  const char* refused_why REWIRE_GUARDED_BY(mutex) = nullptr;
  bool closing REWIRE_GUARDED_BY(mutex) = false;  // the application destroys it

  // Returns the present identity, which messages name the communicator by. Thread-safe.
  [[nodiscard]] CommunicatorId id() const { return *present_id.load(std::memory_order_acquire); }
  // Gives the communicator the identity of the generation that is now current. Call at an update
  // boundary, with the application's thread inside rewireUpdate().
  void TakeIdentity() REWIRE_REQUIRES(mutex);
  // Returns the first operation index at which the program's thread must call in; kNoCut: none.
  [[nodiscard]] uint64_t StopAt() const REWIRE_REQUIRES(mutex);
  // Call after a change: stores StopAt() for the program's thread and wakes a waiting thread.
  void Arm() REWIRE_REQUIRES(mutex);
  void TakePending(std::vector<std::unique_ptr<Link>>* links) REWIRE_REQUIRES(mutex);
  // Leaves `old` empty, which Retirement knows.
  [[nodiscard]] elastic::Position Describe() const REWIRE_REQUIRES(mutex);
  [[nodiscard]] elastic::CommunicatorCreated DescribeCreated() REWIRE_EXCLUDES(mutex);
};

// Returns the position of a communicator whose ranks in this process have these positions: that of
// the rank furthest behind, because no generation that one rank needs may be retired.
elastic::Position CombinePositions(const std::vector<elastic::Position>& ranks);

// Returns whether the program has ever sent or received on the communicator. Such operations have
// no index that both sides share, so only the collectives around them can place a swap.
bool CarriesPointToPoint(const VirtualCommunicator& comm);

// The open communicators of this process, each with its chain. Thread-safe.
class Chains {
 public:
  struct Removed {
    std::shared_ptr<Chain> chain;  // nullptr: the communicator is not here
    bool several = false;          // other ranks of this process still have the communicator
    bool last = false;             // no communicator is left
  };

  void Add(std::shared_ptr<Chain> chain) REWIRE_EXCLUDES(mutex_);
  Removed Remove(VirtualCommunicator* comm) REWIRE_EXCLUDES(mutex_);
  // Returns nullptr when the communicator is not here.
  [[nodiscard]] std::shared_ptr<Chain> Of(VirtualCommunicator* comm) const REWIRE_EXCLUDES(mutex_);
  // Returns all ranks of the communicator in this process, in ascending order.
  [[nodiscard]] std::vector<std::shared_ptr<Chain>> RanksOf(const CommunicatorId& id) const
      REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<std::shared_ptr<Chain>> All() const REWIRE_EXCLUDES(mutex_);

 private:
  [[nodiscard]] bool HasRank(const CommunicatorId& id) const REWIRE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<VirtualCommunicator*, std::shared_ptr<Chain>> chains_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::shim
