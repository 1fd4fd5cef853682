// Every message between a member (participant, in the training process) and the leader (agent).
//
// Pure values. Each carries the epoch that it is about; a message of another epoch is dropped and
// counted. docs/protocol.md has the order in which they are sent; codec.h has the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "reconfig/transition/world.h"

namespace rewire {

enum class TransitionKind : uint8_t {
  kSwap = 1,      // same members: new generations, at a cut per communicator
  kBoundary = 2,  // members change, at an update boundary
  kLoss = 3,      // members were lost: the boundary is reached through an error
};

// 128 bytes, of the real NCCL; behind them, opaque, what the minter's communicator has been used
// for (at most kMaxUniqueIdBytes in all): it is handed on whole, so that all ranks warm up alike.
using UniqueIdBytes = std::string;
inline constexpr size_t kMaxUniqueIdBytes = 4096;

struct CommunicatorBuild {
  CommunicatorId communicator;
  uint32_t ranks = 0;
  uint32_t rank = 0;  // of the member that this message goes to
  UniqueIdBytes unique_id;
  bool operator==(const CommunicatorBuild&) const = default;
};

struct CommunicatorCounter {
  CommunicatorId communicator;
  uint64_t issued = 0;  // operations issued so far
  bool operator==(const CommunicatorCounter&) const = default;
};

// One generation of one communicator. The order is that in which generations are destroyed.
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

// Why a member refuses the cut of one communicator.
struct CutRefusal {
  CommunicatorId communicator;
  std::string reason;  // "its program has a thread inside the communicator"
};

// ---- member to leader -------------------------------------------------------------------------

// The first message on a connection. Answered by Welcome, or by Refused and a close.
struct Hello {
  uint32_t protocol = 5;
  MemberId member = 0;
  uint64_t incarnation = 0;
  uint32_t pid = 0;
  bool cooperates = false;   // uses the C API: its world may change at update boundaries
  std::string data_address;  // empty when it does not
  bool broken = false;       // told of a loss, and no new world since: its generations are aborted
  Epoch epoch = 0;           // that it is in (0: none yet): what it reports next is as of then
  uint32_t positions = 0;    // how many Position messages follow before any answer
  std::vector<GenerationId> retiring;  // of the last Retire that it has had
};
// A virtual communicator exists in this process. A joiner's program makes its communicators as if
// the world were new; they are built with the next epoch's generations.
struct CommunicatorCreated {
  CommunicatorId communicator;
  uint32_t ranks = 0;
  uint32_t rank = 0;
  bool pinned = false;  // cannot be swapped; why is in reason
  std::string reason;
};
struct CommunicatorDestroyed {
  CommunicatorId communicator;
};
// The real unique id for a communicator's next generation, from its rank 0.
struct Minted {
  Epoch epoch = 0;
  CommunicatorId communicator;
  UniqueIdBytes unique_id;
};
// READY: all generations built (or not), plan made. ok=false aborts the transition, or prepares it
// anew when another attempt may succeed (`again`).
struct Prepared {
  Epoch epoch = 0;
  bool ok = false;
  std::string error;
  uint64_t plan_hash = 0;  // equal on all members, or the transition aborts
  std::vector<CommunicatorCounter> counters;
  bool again = false;
};
// ok: "I have not issued these operations, and will not before the decision". Not ok: the cut of
// `communicator` is refused for `reason`.
struct Pledge {
  Epoch epoch = 0;
  uint32_t round = 0;
  bool ok = false;
  CommunicatorId communicator;
  std::string reason;
  std::vector<CommunicatorCounter> counters;
};
// Which parts of a world's state exist once, which are replicated, and which are copied. Follows
// from the tensors' layouts, so it is equal on all members of the world.
struct StateLayout {
  bool replicated = false;  // some state is constant between updates and on every slot
  bool replicated_volatile =
      false;                      // some is volatile and on every slot: own copies have all of it
  std::vector<uint32_t> sharded;  // slots with state that exists once
  std::vector<uint32_t> pieces;   // slots whose copies have a piece of the replicated state
  bool operator==(const StateLayout&) const = default;
};
// This member's program stands at the update boundary. Versions count applied updates. For a
// planned change only the epoch matters; a joiner sends it when it is prepared and its program
// waits in its first update. A version is listed when every byte of it is there.
struct AtBoundary {
  Epoch epoch = 0;
  uint64_t live_version = 0;  // of the state in place
  // The member can give all that its slot has at live_version: constant tensors from their place,
  // volatile ones from its own copies. False: the update had begun, or a copy is missing.
  bool live_whole = false;
  std::vector<uint64_t> own_snapshots;    // versions of the copies of its own slot
  std::vector<uint64_t> buddy_snapshots;  // versions of the copies of the previous slot
  StateLayout layout;
};
// STREAMED and VERIFIED: everything this member receives has arrived and hashes to what its source
// declared, and everything it sent still hashed to the same at the boundary.
struct Verified {
  Epoch epoch = 0;
  bool ok = false;
  std::string error;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};
// This member is in the new epoch. For a swap: the decision holds for all its communicators, which
// pass their cuts later; each passage is reported by a Position.
struct Entered {
  Epoch epoch = 0;
  uint64_t pause_ns = 0;
};
// The generations of one communicator in this process: after connecting, and after every change.
struct Position {
  CommunicatorId communicator;
  bool open = false;                 // it has a generation in use; false: destroyed or lost
  Epoch in_use = 0;                  // of that generation; 0: made by the program's own call
  bool point_to_point = false;       // it has carried sends or receives
  uint64_t host_waits = 0;           // of the swap to the generation in use
  std::vector<PendingSwap> pending;  // in the order of their cuts
  std::vector<Epoch> old;            // out of use and not destroyed yet, ascending
  bool operator==(const Position&) const = default;
};
// Of the net plugin in the member's process, since that began; zeros without it.
struct NetCounts {
  uint64_t links_made = 0;
  uint64_t links_reused = 0;
  uint64_t strangers = 0;     // turned away
  uint64_t rails_failed = 0;  // of links over RDMA that this member sends on
  uint64_t rails_back = 0;
};
// Of balancing experts in the member's process, since that began; zeros without it.
struct MoeCounts {
  uint64_t rounds = 0;  // a layer of a micro-batch, forward or backward
  uint64_t moves = 0;   // of this member's experts
  uint64_t copied_bytes = 0;
  uint64_t late_rounds = 0;
  uint64_t budget = 0;  // experts that a round may copy now
  // Balancers turned off: by copies that were late, by one that failed, by a lost process.
  uint64_t off_late = 0;
  uint64_t off_copies = 0;
  uint64_t off_broken = 0;
};
// Every REWIRE_HEARTBEAT_MS.
struct Heartbeat {
  uint64_t updates = 0;  // begun so far
  NetCounts net;
  MoeCounts moe;
  // On the member's data address and its descriptor servers: whatever was not served.
  uint64_t connections_refused = 0;
};
// SIGTERM came to this process: drain it within the given time.
struct ReclaimNotice {
  uint32_t within_ms = 0;
};
// The program detached: the member leaves the world of its own will, its work done.
struct Finished {};

// ---- leader to member -------------------------------------------------------------------------

struct Welcome {
  World world;  // the world to see: for a joiner the one it will be in
  bool joining = false;
  Key names_key;  // with which members ask each other for names
  // For a joiner: the members that leave by its change, which know the names until then.
  std::vector<WorldMember> leaving{};
};
// This process is not part of the job, or will not become part: the change that it was to join by
// was called off. The job goes on without it.
struct Refused {
  std::string reason;
};
// PREPARE: make the next world's generations and plan. communicators: what this member must mint a
// unique id for (it is rank 0 of them in the target world).
struct Prepare {
  Epoch epoch = 0;  // of the target
  TransitionKind kind = TransitionKind::kSwap;
  World from;
  World to;
  Key secret;  // of the epoch
  uint32_t deadline_ms = 0;
  std::vector<CommunicatorId> mint;
};
// All ids are there: build, in this order.
struct Build {
  Epoch epoch = 0;
  std::vector<CommunicatorBuild> builds;
};
// Of this round it is only a look, without cuts: the answers have the counters, and pledge nothing.
inline constexpr uint32_t kLookRound = UINT32_MAX;
struct Propose {
  Epoch epoch = 0;
  uint32_t round = 0;
  std::vector<Cut> cuts;
};
// go=true for a swap: the epoch is committed, the cuts hold. go=true for a boundary: all stop
// at that update (ARMED). go=false: forget the pledge, another round follows or an Abort.
struct Decide {
  Epoch epoch = 0;
  uint32_t round = 0;
  bool go = false;
};
// The members from which a version of the state is restored.
struct RestoreSources {
  std::vector<MemberId> live;   // AtBoundary::live_whole at this version
  std::vector<MemberId> own;    // with the copies of their own slot
  std::vector<MemberId> buddy;  // with the copies of the previous slot
  bool operator==(const RestoreSources&) const = default;
};
// After a loss: bring the state to this version, then verify.
struct Restore {
  Epoch epoch = 0;
  uint64_t version = 0;
  RestoreSources sources;
};
// Sent to everyone after the commit, and after every Welcome of a member that is not joining:
// taking it twice does nothing.
struct Commit {
  WorldRecord record;
};
struct Abort {
  Epoch epoch = 0;
  std::string reason;
};
// No member uses these generations any more: destroy them in this order. Each is reported by a
// Position once it is gone.
struct Retire {
  std::vector<GenerationId> generations;
};
// These members of the current world are gone: abort the current generation of every communicator
// and forget the transition under way. An empty list: lost before the leader restarted.
struct Lost {
  Epoch epoch = 0;  // of the current world
  std::vector<MemberId> members;
};
// The job cannot go on: its state is lost. Sent to every member of the world, and to nobody else.
struct Stop {
  std::string reason;
};

using Message = std::variant<Hello, CommunicatorCreated, CommunicatorDestroyed, Minted, Prepared,
                             Pledge, AtBoundary, Verified, Entered, Position, Heartbeat,
                             ReclaimNotice, Finished, Welcome, Refused, Prepare, Build, Propose,
                             Decide, Restore, Commit, Abort, Lost, Stop, Retire>;

}  // namespace rewire
