// What an application holds as ncclComm_t, and the real NCCL communicators behind it.
//
// Owned by the preloaded library. The core reads everything here and changes only what is marked
// [core]; it makes, publishes and frees generations through ShimServices (core_abi.h), never by
// itself. libc and libstdc++'s headers only.
//
// Which thread: an application uses one communicator from one thread at a time (NCCL's rule), so
// `issued` has a single writer. GetAsyncError, Abort and the core come from any thread.
//
// ---- Indices, exactly ---------------------------------------------------------------------------
// `issued` counts the collectives that NCCL has taken (ncclSuccess or ncclInProgress); the next one
// has index `issued`. Send, Recv and one-sided operations are checked against the cut like a
// collective but are not counted (p2p counters are per peer).
//
// Outside a group, an operation X (collective or p2p):
//   1. while issued >= stop_at, outside every generation: at_cut(comm, {stream, 0}). So at_cut
//   comes
//      before the operation with index stop_at. The thread enters the current generation after
//      each, and then looks again.
//   2. the current generation is loaded and the operation goes to it.
//   3. if it was a collective: issued += 1. If now issued == stop_at: before_cut(comm, {stream,
//   0}):
//      the event goes behind the operation with index stop_at - 1.
// Inside a group (between the outermost GroupStart and GroupEnd of one thread):
//   1. the first use of a communicator does step 1 above, with the depth in CallSite; what NCCL is
//      given then joins the application's group. Then its generation is fixed for this group.
//   2. later operations on it in this group are not checked: a group never spans two generations.
//   3. after the outermost GroupEnd, at depth 0: issued += the group's collectives, and when
//   stop_at
//      was passed by that (issued before < stop_at <= issued after): before_cut(comm, {stream of
//      its last operation in the group, 0}).
//   So a cut that falls into a group acts behind that group, on all ranks alike, because they group
//   alike. issued may then be beyond stop_at, and beyond a later stop_at that the core sets in
//   at_cut: step 1 repeats for that. The event of before_cut is then behind the last old operation
//   for both: record it at every before_cut.
// GroupSimulateEnd counts nothing and cuts nothing.
//
// Pledge: store stop_at, ShimServices::pledge's fence, read issued. The pledge "not issued, and
// will not be before the decision" holds when the issued that it returns is < stop_at; otherwise
// take it back (stop_at = kNoCut). The threads that issue use plain loads: the fence is
// membarrier(2).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/transition/world.h"
#include "shim/registration.h"

namespace rewire::shim {

inline constexpr uint64_t kNoCut = UINT64_MAX;
// More proposals than this never meet one operation: the call fails.
inline constexpr int kCutsPerCall = 100;

// The first word of a VirtualCommunicator. Anything else is not ours and goes to NCCL untouched.
enum class Magic : uint64_t {
  kOpen = 0x5245574952450001ULL,
  kDestroyed = 0x5245574952450002ULL,     // a stale handle: ncclInvalidArgument
  kOtherProcess = 0x5245574952450003ULL,  // made before fork(), used in the child: ncclInvalidUsage
};

enum class GenerationState : uint32_t {
  kOpen = 0,
  kAborted = 1,  // a peer was lost: every call gives ncclRemoteError
  kClosed = 2,   // this member is no longer in it: every call gives ncclInvalidUsage
};

// One real NCCL communicator.
struct Generation {
  // NCCL stores the communicator here, for a split at some later time and from its own thread.
  ncclComm_t real = nullptr;
  std::atomic<GenerationState> state{GenerationState::kOpen};  // [core]
  std::atomic<int> ranks{-1};                                  // -1: not known yet (split)
  std::atomic<int> rank{-1};
  std::atomic<int> device{-1};
  uint64_t epoch = 0;  // set before it is published
  // Groups of threads that have fixed this generation; see thread_slot.h.
  std::atomic<uint64_t> fixed{0};
  // Real values of the registrations, windows and operators, by RegistrationList index. Empty in a
  // generation in which every value is the one the application was given.
  RealValues values;

  // NCCL writes `real` without our types, so it is read the same way.
  [[nodiscard]] ncclComm_t Real() const { return __atomic_load_n(&real, __ATOMIC_ACQUIRE); }
};

enum class Creation : uint32_t { kInitRank, kInitRankScalable, kInitAll, kSplit, kShrink, kGrow };

// How the communicator was made; written before created(), constant afterwards.
struct Recipe {
  Creation creation = Creation::kInitRank;
  bool in_group = false;          // asked for inside a group
  bool blocking = true;           // as the application gave it; a child inherits it
  std::vector<ncclUniqueId> ids;  // of kInitRank*
  // The application's config as it was (its own size), strings copied; a child made without one has
  // its parent's. Empty: none was given anywhere.
  std::vector<unsigned char> config;
  std::string net_name;
  std::string comm_name;
  // The config to make a generation with, or nullptr.
  [[nodiscard]] const ncclConfig_t* Config() const {
    return config.empty() ? nullptr : reinterpret_cast<const ncclConfig_t*>(config.data());
  }
};

// Why a communicator cannot be swapped: bits of VirtualCommunicator::pins. Never taken back.
enum class Pin : uint32_t {
  kGraph = 1,          // an operation was captured into a CUDA graph
  kDeviceComm = 2,     // ncclDevCommCreate: kernels hold raw pointers
  kWindowPointer = 4,  // addresses of a window were given to the application
  kSignals = 8,        // one-sided signals: their counters are the window's
  kInitAll = 16,       // several devices in one process
  kGrown = 32,         // ncclCommGrow: the ranks share no identity
};
// One clause per bit, for messages; static text for a single bit.
const char* PinText(Pin pin);

// What the application has used a communicator for, for warm-up with real sizes: of each function
// and data type, bit floor(log2(count)).
enum class Collective : uint32_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAlltoAll,
  kGather,
  kScatter,
  kSend,
  kRecv,
  kNumber
};
inline constexpr unsigned kSeenTypes = 16;

struct PeerCounters {
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> received{0};
};

// What the core knows of a communicator.
enum class Told : uint32_t { kNothing, kCreated, kClosing };

// Memory of this type is used again for other communicators but never unmapped, so the magic of a
// stale handle can always be read. What the fast path touches comes first.
struct alignas(64) VirtualCommunicator {
  std::atomic<Magic> magic{Magic::kDestroyed};
  std::atomic<Generation*> current{nullptr};  // changed by ShimServices::publish alone
  std::atomic<uint64_t> issued{0};
  std::atomic<uint64_t> stop_at{kNoCut};  // [core]
  std::atomic<cudaStream_t> last_stream{nullptr};
  std::atomic<uint32_t> pins{0};  // bits of Pin
  // A CUDA driver and a core are there: streams are asked whether they are being captured.
  std::atomic<bool> watch_capture{false};
  std::atomic<void*> core{nullptr};  // [core] what the core keeps for this communicator

  CommunicatorId id;
  Recipe recipe;
  std::atomic<uint64_t> children{0};  // splits and grows asked for so far
  // Shrinks asked for so far, by the excluded ranks. The application's thread.
  std::map<std::vector<int>, uint64_t> shrinks;
  RegistrationList registrations;
  std::atomic<uint64_t> seen[static_cast<unsigned>(Collective::kNumber)][kSeenTypes] = {};
  std::atomic<PeerCounters*> peers{nullptr};  // by peer; nullptr before the first Send or Recv
  std::atomic<int> peer_count{0};

  // The preloaded library's own.
  std::atomic<Told> told{Told::kNothing};
  std::atomic<VirtualCommunicator*> parent{nullptr};  // of a split or shrink
  std::atomic<bool> closing{false};                   // Destroy or Abort is under way
  std::atomic<int> users{0};  // threads in slow paths that hold no generation
  VirtualCommunicator* next_in_pool = nullptr;
};

inline void AddPin(VirtualCommunicator* comm, Pin pin) {
  comm->pins.fetch_or(static_cast<uint32_t>(pin), std::memory_order_relaxed);
}

}  // namespace rewire::shim
