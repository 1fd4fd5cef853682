// Every message between a member (participant, in the training process) and the leader (agent).
//
// Pure values. Each message carries the epoch that it is about; a message of another epoch is
// dropped and counted. docs/protocol.md has the order of messages; codec.h has the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "reconfig/abi/counter_value.h"
#include "reconfig/world/world.h"

namespace rewire::elastic {

enum class TransitionKind : uint8_t {
  kSwap = 1,      // same members: new generations, at a cut per communicator
  kBoundary = 2,  // members change, at an update boundary
  kLoss = 3,      // members were lost: the boundary is reached through an error
};

// The real NCCL's 128 bytes, then opaque bytes about the minter's use of the communicator (at most
// kMaxUniqueIdBytes in all). All ranks get the whole value, so that all ranks warm up alike.
using UniqueIdBytes = std::string;
inline constexpr size_t kMaxUniqueIdBytes = 4096;
inline constexpr size_t kMaxGroupBytes = 128;  // of a group communicator's name

struct CommunicatorBuild {
  CommunicatorId communicator;
  uint32_t ranks = 0;
  std::vector<uint32_t> held;  // ranks of the member that receives this message, ascending
  UniqueIdBytes unique_id;
  // The generation is for another group of a group communicator, whose identity from then on is
  // IdentityOfUniqueId(unique_id).
  bool grouped = false;
  bool operator==(const CommunicatorBuild&) const = default;
};

struct CommunicatorCounter {
  CommunicatorId communicator;
  uint64_t issued = 0;  // operations issued so far; with several ranks, by the furthest rank
  bool operator==(const CommunicatorCounter&) const = default;
};

// One generation of one communicator. Generations are destroyed in ascending order.
struct GenerationId {
  Epoch epoch = 0;
  CommunicatorId communicator;
  auto operator<=>(const GenerationId&) const = default;
};

// A decided swap that a member's communicator has not passed yet.
struct PendingSwap {
  Epoch epoch = 0;
  uint64_t warm = 0;
  uint64_t cut = 0;
  bool operator==(const PendingSwap&) const = default;
};

// Compares a new cut of a communicator with a decided swap that the communicator has not passed
// yet. Leader and members share these rules (docs/protocol.md, "Pending swaps").
enum class CutOrder {
  kReplaces,  // no member can have begun the pending swap: its generation is dropped unused
  kFollows,   // the pending swap comes first
  kCrosses,   // neither: the cut must be refused
};

inline CutOrder OrderOf(const Cut& cut, const PendingSwap& pending) {
  if (cut.warm <= pending.warm && cut.cut <= pending.cut) return CutOrder::kReplaces;
  return cut.warm >= pending.cut ? CutOrder::kFollows : CutOrder::kCrosses;
}

// A member's reason to refuse the cut of one communicator.
struct CutRefusal {
  CommunicatorId communicator;
  std::string reason;  // "a thread of the program is inside the communicator"
};

// ---- member to leader -------------------------------------------------------------------------

// The first message on a connection. The leader answers with Welcome, or with Refused and a close.
struct Hello {
  MemberId member = 0;
  uint64_t incarnation = 0;
  uint32_t pid = 0;
  bool cooperates = false;   // uses the C API: its world may change at update boundaries
  std::string data_address;  // empty when the member does not cooperate
  bool broken = false;       // told of a loss, and no new world since: its generations are aborted
  Epoch epoch = 0;           // the member's epoch (0: none yet), to which its next reports refer
  uint32_t positions = 0;    // how many Position messages follow before any answer
  std::vector<GenerationId> retiring;  // as in the last received Retire
};
// Reports a virtual communicator of this process with all its ranks in the process. A later report
// replaces an earlier report. A joiner's program makes its communicators as in a new world; they
// are built with the next epoch's generations.
struct CommunicatorCreated {
  CommunicatorId communicator;
  uint32_t ranks = 0;
  std::vector<uint32_t> held;  // ranks in this process, ascending
  bool pinned = false;         // cannot be swapped, for `reason`
  std::string reason;
  // A group communicator: its name, which it has on every member, and how many communicators of
  // this name the member had made in this world before. Empty: none.
  std::string group{};
  uint32_t creation = 0;
};
// No rank of the communicator is left in this process.
struct CommunicatorDestroyed {
  CommunicatorId communicator;
};
// The pins of a reported communicator have changed.
struct CommunicatorPinned {
  CommunicatorId communicator;
  std::string reason;  // why the communicator cannot be swapped; empty: it can
};
// Carries the real unique id for a communicator's next generation: from its rank 0, or from one
// member of each group in the target world.
struct Minted {
  Epoch epoch = 0;
  CommunicatorId communicator;  // as the sender knows it
  UniqueIdBytes unique_id;
  std::vector<uint32_t> slots{};  // of the group in the target world, ascending; empty: no group
};
// READY: all generations are built (or not) and the plan is made. ok=false aborts the transition,
// or prepares the transition again when another attempt may succeed (`again`).
struct Prepared {
  Epoch epoch = 0;
  bool ok = false;
  std::string error;
  uint64_t plan_hash = 0;  // equal on all members, or the transition aborts
  std::vector<CommunicatorCounter> counters;
  bool again = false;
};
// ok: "I have not issued these operations, and will not before the decision". Not ok: the member
// refuses the cut of `communicator` for `reason`.
struct Pledge {
  Epoch epoch = 0;
  uint32_t round = 0;
  bool ok = false;
  CommunicatorId communicator;
  std::string reason;
  std::vector<CommunicatorCounter> counters;
};
// This member's program stands at the update boundary. Versions count applied updates. A version is
// listed when every byte of it is present. For a planned change only the epoch matters. A joiner
// sends this message when it is prepared and its program waits in its first update.
struct AtBoundary {
  Epoch epoch = 0;
  uint64_t live_version = 0;  // version of the state in place
  // The member can give all state of its slot at live_version: constant tensors in place, volatile
  // tensors from its own copies. False: the update had begun, or a copy is missing.
  bool live_whole = false;
  std::vector<uint64_t> own_snapshots;    // versions of the copies of its own slot
  std::vector<uint64_t> buddy_snapshots;  // versions of the copies of the previous slot
  StateNeeds needs;
};
// STREAMED and VERIFIED: all state that this member receives has arrived and has the hash that its
// source declared. All state that the member sent still had the same hash at the boundary.
struct Verified {
  Epoch epoch = 0;
  bool ok = false;
  std::string error;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};
// This member is in the new epoch. For a swap: the decision holds for all its communicators, which
// pass their cuts later; a Position reports each passage.
struct Entered {
  Epoch epoch = 0;
  uint64_t pause_ns = 0;
};
// The generations of one communicator in this process. Sent after connecting and every change. With
// several ranks in the process, the position is that of the rank that is furthest behind.
struct Position {
  CommunicatorId communicator;
  bool open = false;                 // a generation is in use; false: destroyed or lost
  Epoch in_use = 0;                  // epoch of that generation; 0: made by the program's own call
  bool point_to_point = false;       // the communicator has carried sends or receives
  uint64_t host_waits = 0;           // host waits of the swap to the generation in use
  std::vector<PendingSwap> pending;  // in the order of their cuts
  std::vector<Epoch> old;            // out of use and not destroyed yet, ascending
  bool operator==(const Position&) const = default;
};
// Sent every REWIRE_HEARTBEAT_MS.
struct Heartbeat {
  uint64_t updates = 0;                // updates begun so far
  std::vector<CounterValue> counters;  // of the process, other than 0
};
// SIGTERM reached this process: drain the member within the given time.
struct ReclaimNotice {
  uint32_t within_ms = 0;
};
// The program detached: its work is done, and the member leaves the world by itself.
struct Finished {};
// The only message of a connection that ends when the sender's process begins to die: the agent
// then reads what has arrived on the connection with the process's Hello, and closes it.
struct Witness {};

// ---- leader to member -------------------------------------------------------------------------

struct Welcome {
  World world;  // for a joiner its future world
  bool joining = false;
  Key names_key;  // for the name requests between members
  // For a joiner: the members that its change removes, which know the names until then.
  std::vector<WorldMember> leaving{};
};
// There is no world yet. `missing` other initial members had not connected.
struct Forming {
  uint32_t missing = 0;
};
// Dismisses a process that is not part of the job, or whose change was called off before it joined.
// The job continues without the process.
struct Refused {
  std::string reason;
};
// PREPARE: make the next world's generations and plan. mint: the communicators whose unique id this
// member must mint (it is rank 0 of them in the target world).
struct Prepare {
  Epoch epoch = 0;  // epoch of the target
  TransitionKind kind = TransitionKind::kSwap;
  World from;
  World to;
  Key secret;  // secret of the epoch
  uint32_t deadline_ms = 0;
  std::vector<CommunicatorId> mint;
};
// All ids are present: build the communicators in this order.
struct Build {
  Epoch epoch = 0;
  std::vector<CommunicatorBuild> builds;
};
// A Propose of this round has no cuts: the answers have the counters and pledge nothing.
inline constexpr uint32_t kLookRound = UINT32_MAX;
struct Propose {
  Epoch epoch = 0;
  uint32_t round = 0;
  std::vector<Cut> cuts;
};
// go=true for a swap: the epoch is committed and the cuts hold. go=true for a boundary: all members
// stop at that update (ARMED). go=false: forget the pledge; another round or an Abort follows.
struct Decide {
  Epoch epoch = 0;
  uint32_t round = 0;
  bool go = false;
};
// After a loss: bring the state to this version, then verify.
struct Restore {
  Epoch epoch = 0;
  uint64_t version = 0;
  RestoreSources sources;
};
// Sent to everyone after the commit, and after every Welcome of a member that is not joining. A
// second Commit of the same record has no effect.
struct Commit {
  WorldRecord record;
};
struct Abort {
  Epoch epoch = 0;
  std::string reason;
};
// Destroy these unused generations in this order. A Position reports each destroyed generation.
struct Retire {
  std::vector<GenerationId> generations;
};
// These members of the current world are lost: abort the current generation of every communicator
// and forget the current transition. An empty list: the loss came before the leader restarted.
struct Lost {
  Epoch epoch = 0;  // epoch of the current world
  std::vector<MemberId> members;
};
// The job cannot continue, because its state is lost. Sent only to the members of the world.
struct Stop {
  std::string reason;
};

using Message =
    std::variant<Hello, CommunicatorCreated, CommunicatorDestroyed, Minted, Prepared, Pledge,
                 AtBoundary, Verified, Entered, Position, Heartbeat, ReclaimNotice, Finished,
                 Welcome, Refused, Prepare, Build, Propose, Decide, Restore, Commit, Abort, Lost,
                 Stop, Retire, CommunicatorPinned, Witness, Forming>;

template <typename M, typename... Others>
concept OneOf = (std::is_same_v<M, Others> || ...);
// The sender of a message; a receiver counts and drops the messages that it never gets.
template <typename M>
concept OfAMember = OneOf<M, Hello, CommunicatorCreated, CommunicatorDestroyed, Minted, Prepared,
                          Pledge, AtBoundary, Verified, Entered, Position, Heartbeat, ReclaimNotice,
                          Finished, CommunicatorPinned, Witness>;
template <typename M>
concept OfTheLeader = OneOf<M, Welcome, Refused, Prepare, Build, Propose, Decide, Restore, Commit,
                            Abort, Lost, Stop, Retire, Forming>;

}  // namespace rewire::elastic
