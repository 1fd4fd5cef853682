// The actions that a member's state machine asks of its participant. Pure values, to be done in the
// given order. An input of Member, named there, answers each action that may take time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

// Write the message to the agent. Only given while connected.
struct SendMessage {
  Message message;
};
// The world of this process is known: rewireAttach() may return. For a joiner this is its future
// world (secret is zero until its Prepare). Given once.
struct EnterWorld {
  World world;
  bool joining = false;
  Key names_key;
  Key secret;
  std::vector<WorldMember> leaving{};  // for a joiner: see Welcome
};
// The agent has answered, and EnterWorld comes later: rewireAttach() has to wait for it.
struct AwaitWorld {
  uint32_t missing = 0;  // other initial members that had not connected
};
// Mint one unique id per communicator; answer each with OnMinted.
struct MintIds {
  Epoch epoch = 0;
  std::vector<CommunicatorId> communicators;
};
// Make the plan from one world to the other and allocate its memory; answer with OnPlanned. Not
// given for a swap. For a loss, `from` includes the lost members; RestoreFrom brings the version.
// One member of each group of `to` also mints the group's id, and answers with OnMinted: the member
// in the group's lowest slot that is not a joiner's, or in the lowest slot. A joiner's
// communicators have no record of their use.
struct MakePlan {
  Epoch epoch = 0;
  TransitionKind kind = TransitionKind::kBoundary;
  World from;
  World to;
  Key secret;
  std::map<std::string, CommunicatorId> groups{};  // this member's group communicators, by name
};
// Call Communicators::Build; answer with OnBuilt. Also given when there is nothing to build.
struct BuildGenerations {
  Epoch epoch = 0;
  std::vector<CommunicatorBuild> builds;
  Time deadline{};
};
// Call Communicators::Pledge; answer with OnPledged.
struct PledgeCuts {
  Epoch epoch = 0;
  uint32_t round = 0;
  std::vector<Cut> cuts;
};
// Pledge if at most `step` updates have begun: update `step` (counted from 0) will not begin before
// Resume. From then on a program that reaches update `step` stands still and OnBoundary is called.
// Answer with OnPledged.
struct PledgeBoundary {
  Epoch epoch = 0;
  uint32_t round = 0;
  uint64_t step = 0;
};
// Call Communicators::Decide. go: answer with OnPositions, and with OnEntered once the decision
// holds. Wait for no operation of the program.
struct DecideCuts {
  Epoch epoch = 0;
  bool go = false;
};
// Forget the pledge for the update boundary; Resume follows if the program stands there.
struct ReleaseBoundary {
  Epoch epoch = 0;
};
// ARMED: after `step` updates, stream state that is constant between updates. A joiner receives.
struct StartStream {
  Epoch epoch = 0;
  uint64_t step = 0;
};
// The program stands at the boundary: stream the rest and check everything; answer with OnStreamed.
struct FinishStream {
  Epoch epoch = 0;
};
// Report the versions by OnBoundary, now or once the program stands at the boundary.
struct DescribeBoundary {};
// After a loss: bring this member's part of the new world to `version`; answer with OnStreamed.
struct RestoreFrom {
  Epoch epoch = 0;
  uint64_t version = 0;
  RestoreSources sources;
};
// COMMITTED. swap: only the epoch and the secret change (DecideCuts has decided the cuts).
// Otherwise, on the program's thread, which stands at the boundary: swap the communicators, adopt
// the new state, and answer with OnEntered. slot is empty when this member is not in the new world.
struct Adopt {
  WorldRecord record;
  TransitionKind kind = TransitionKind::kSwap;
  std::optional<uint32_t> slot;
};
// The epoch is cancelled: forget its plan, stream and generations.
struct AbandonEpoch {
  Epoch epoch = 0;
  std::string reason;
};
// Call Communicators::Retire; the next OnPositions shows each generation that is gone.
struct RetireGenerations {
  std::vector<GenerationId> generations;
};
// Members were lost: abort the current generation of every communicator. From now on the program
// stands still at its next update boundary or recover call, until Resume.
struct AbortCurrent {
  std::string reason;
  uint32_t living = 0;  // members that are left
};
// Let the program at the boundary continue. Comes after Adopt, or after AbandonEpoch (kContinue).
enum class ResumeKind : uint8_t { kContinue, kWorldChanged, kRepeat, kLeave };
struct Resume {
  ResumeKind kind = ResumeKind::kContinue;
};
// Return this reason as the error of every waiting call: nothing can be saved, or this process has
// left the job. Nothing follows.
struct StopProcess {
  std::string reason;
};

using MemberAction =
    std::variant<SendMessage, EnterWorld, AwaitWorld, MintIds, MakePlan, BuildGenerations,
                 PledgeCuts, PledgeBoundary, DecideCuts, ReleaseBoundary, StartStream, FinishStream,
                 DescribeBoundary, RestoreFrom, Adopt, AbandonEpoch, RetireGenerations,
                 AbortCurrent, Resume, StopProcess>;

}  // namespace rewire::elastic
