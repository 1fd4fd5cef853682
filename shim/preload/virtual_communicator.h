// The handle that an application holds as ncclComm_t. A generation (generation.h) serves it.
//
// Owned by the preloaded library. The core reads everything here and changes only members marked
// [core]. This file uses libc and libstdc++'s headers only.
//
// A process may have several ranks of one communicator, on several devices: each has a handle of
// its own, with the same id.
//
// Threads: an application uses one communicator from one thread at a time (NCCL's rule), so
// `issued` has a single writer. GetAsyncError, Abort and the core come from any thread.
//
// ---- Indices, exactly ---------------------------------------------------------------------------
// `issued` counts the collectives that NCCL has taken (ncclSuccess or ncclInProgress); the next
// collective has index `issued`. Send, Recv and one-sided operations are checked against the cut
// like a collective but are not counted (p2p counters are per peer).
//
// Outside a group, an operation X (collective or p2p) takes these steps:
//   1. The thread enters the current generation and then compares. While issued >= stop_at, the
//      thread leaves, calls at_cut(comm, {stream, 0}) outside every generation, enters and compares
//      again. So at_cut comes before the operation with index stop_at.
//   2. The thread sends the operation to the generation that it has entered.
//   3. A collective then adds 1 to issued. If now issued == stop_at, the thread calls
//      before_cut(comm, {stream, 0}): the event follows the operation with index stop_at - 1.
// Inside a group (between the outermost GroupStart and GroupEnd of one thread):
//   1. The first use of a communicator does step 1 above, with the depth in CallSite. An operation
//      that the core gives to NCCL on this thread joins the application's group. Then the
//      generation is fixed for this group.
//   2. Later operations on the communicator in this group are not checked: a group never spans two
//      generations.
//   3. After the outermost GroupEnd, at depth 0, the group's collectives are added to issued. When
//      issued passed stop_at (issued before < stop_at <= issued after), the thread calls
//      before_cut(comm, {stream of the last operation in the group, 0}).
//   So a cut that falls into a group acts after that group, on all ranks alike, because all ranks
//   form the same groups. issued may then be beyond stop_at, and beyond a later stop_at that the
//   core sets in at_cut: step 1 repeats for the later stop_at. The event of before_cut then follows
//   the last old operation for both cuts: record the event at every before_cut.
// GroupSimulateEnd counts nothing and cuts nothing.
//
// Pledge: store stop_at, pass ShimServices::pledge's fence, read issued. The pledge "not issued,
// and will not be before the decision" holds when the issued that pledge returns is < stop_at.
// Otherwise take the pledge back (stop_at = kNoCut). Issuing threads use plain loads: the fence is
// membarrier(2).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/world/world.h"
#include "shim/preload/generation.h"
#include "shim/preload/registration_list.h"

namespace rewire::shim {

inline constexpr uint64_t kNoCut = UINT64_MAX;
// The limit of proposals that one operation may meet; above the limit, the call fails.
inline constexpr int kCutsPerCall = 100;

// The first word of a VirtualCommunicator. A handle with any other value goes to NCCL unchanged.
enum class Magic : uint64_t {
  kOpen = 0x5245574952450001ULL,
  kDestroyed = 0x5245574952450002ULL,     // a stale handle: ncclInvalidArgument
  kOtherProcess = 0x5245574952450003ULL,  // made before fork(), used in the child: ncclInvalidUsage
};

enum class Creation : uint32_t { kInitRank, kInitRankScalable, kInitAll, kSplit, kShrink, kGrow };

// How the communicator was made. Written before created(), constant afterwards.
struct Recipe {
  Creation creation = Creation::kInitRank;
  bool in_group = false;          // requested inside a group
  bool blocking = true;           // as the application gave it; a child inherits it
  std::vector<ncclUniqueId> ids;  // the ids given to kInitRank*
  // The application's config in its own size, with copied strings. A child made without a config
  // has the config of its parent. Empty: neither was given a config.
  std::vector<unsigned char> config;
  std::string net_name;
  std::string comm_name;
  // The config for making a generation, or nullptr.
  [[nodiscard]] const ncclConfig_t* Config() const {
    return config.empty() ? nullptr : reinterpret_cast<const ncclConfig_t*>(config.data());
  }
};

// Reasons why a communicator cannot be swapped: bits of VirtualCommunicator::pins. Permanent,
// except for kGraph and kSuspended.
enum class Pin : uint32_t {
  kGraph = 1,          // an operation was captured into a CUDA graph; until rewireGraphsReleased()
  kDeviceComm = 2,     // ncclDevCommCreate: kernels hold raw pointers
  kWindowPointer = 4,  // addresses of a window were given to the application
  kSignals = 8,        // one-sided signals: their counters belong to the window
  kMixedModes = 16,    // this process's ranks differ in `blocking`
  kGrown = 32,         // ncclCommGrow: the ranks share no identity
  kSuspended = 64,     // ncclCommSuspend, until ncclCommResume
};

// The operations whose use is recorded, for warm-up with real sizes. VirtualCommunicator::seen has,
// per operation and data type, bit floor(log2(count)).
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

// The last event of a communicator that the core was told of.
enum class Told : uint32_t { kNothing, kCreated, kClosing };

// Memory of this type is reused for other communicators but never unmapped, so the magic of a stale
// handle can always be read. The members that the fast path reads come first.
struct alignas(64) VirtualCommunicator {
  std::atomic<Magic> magic{Magic::kDestroyed};
  std::atomic<Generation*> current{nullptr};  // changed by ShimServices::publish alone
  std::atomic<uint64_t> issued{0};
  std::atomic<uint64_t> stop_at{kNoCut};  // [core]
  std::atomic<cudaStream_t> last_stream{nullptr};
  std::atomic<uint32_t> pins{0};  // bits of Pin
  // Set when a CUDA driver and a core exist: each stream is checked for capture.
  std::atomic<bool> watch_capture{false};

  CommunicatorId first_id;  // written before created(), constant afterwards
  // [core] Points to first_id, or to the identity of a later group. The core changes this member,
  // `children` and `shrinks` together, while the application's thread is inside rewireUpdate().
  // The identity stays valid until the process ends.
  std::atomic<const CommunicatorId*> present_id{&first_id};
  Recipe recipe;
  // [core] Splits and grows requested so far, since the present identity.
  std::atomic<uint64_t> children{0};
  // [core] Shrinks requested so far, by excluded ranks, since the present identity. Owned by the
  // application's thread, except while that thread is inside rewireUpdate().
  std::map<std::vector<int>, uint64_t> shrinks;
  RegistrationList registrations;
  std::atomic<uint64_t> seen[static_cast<unsigned>(Collective::kNumber)][kSeenTypes] = {};
  std::atomic<PeerCounters*> peers{nullptr};  // by peer; nullptr before the first Send or Recv
  std::atomic<int> peer_count{0};

  // Used by the preloaded library alone.
  std::atomic<Told> told{Told::kNothing};
  std::atomic<VirtualCommunicator*> parent{nullptr};  // the parent of a split or shrink
  std::atomic<bool> closing{false};                   // Destroy or Abort is under way
  std::atomic<bool> awaits_first{false};  // [core] a joiner's, until a call has waited for a build
  std::atomic<int> users{0};              // threads in slow paths that hold no generation
  VirtualCommunicator* next_in_pool = nullptr;

  // Thread-safe after created().
  [[nodiscard]] CommunicatorId id() const noexcept {
    return *present_id.load(std::memory_order_acquire);
  }
};

// Prevents reuse of the communicator's memory while a thread that holds no generation uses it, even
// when the program destroys the communicator meanwhile.
class User {
 public:
  explicit User(VirtualCommunicator* comm) : comm_(comm) {
    comm_->users.fetch_add(1, std::memory_order_seq_cst);
  }
  ~User() { comm_->users.fetch_sub(1, std::memory_order_release); }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

 private:
  VirtualCommunicator* const comm_;
};

// Returns whether the communicator had no such pin. After a change that comes after the creation,
// call TellPinned() (core_loader.h).
inline bool AddPin(VirtualCommunicator* comm, Pin pin) {
  const auto bit = static_cast<uint32_t>(pin);
  return (comm->pins.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

// Returns whether the communicator had the pin.
inline bool RemovePin(VirtualCommunicator* comm, Pin pin) {
  const auto bit = static_cast<uint32_t>(pin);
  return (comm->pins.fetch_and(~bit, std::memory_order_relaxed) & bit) != 0;
}

}  // namespace rewire::shim
