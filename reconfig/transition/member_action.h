// What a member's state machine asks of the participant that runs it. Pure values, in the order in
// which they must be done. Whatever may take time is answered by an input of Member (named at
// each).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/transition/messages.h"

namespace rewire {

// Write it to the agent. Only given while connected.
struct SendMessage {
  Message message;
};
// The world this process belongs to is known: rewireAttach() may return. For a joiner the world it
// will be in (secret is zero until its Prepare). Given once.
struct EnterWorld {
  World world;
  bool joining = false;
  Key names_key;
  Key secret;
  std::vector<WorldMember> leaving{};  // for a joiner: see Welcome
};
// Mint one unique id per communicator; answer each with OnMinted.
struct MintIds {
  Epoch epoch = 0;
  std::vector<CommunicatorId> communicators;
};
// Make the plan from one world to the other, allocate what it needs; answer with OnPlanned. Not
// given for a swap. For a loss `from` is the world with the lost members: the version comes with
// RestoreFrom.
struct MakePlan {
  Epoch epoch = 0;
  TransitionKind kind = TransitionKind::kBoundary;
  World from;
  World to;
  Key secret;
};
// Communicators::Build; answer with OnBuilt. Also given when there is nothing to build.
struct BuildGenerations {
  Epoch epoch = 0;
  std::vector<CommunicatorBuild> builds;
  Time deadline{};
};
// Communicators::Pledge; answer with OnPledged.
struct PledgeCuts {
  Epoch epoch = 0;
  uint32_t round = 0;
  std::vector<Cut> cuts;
};
// Ok when fewer than or exactly `step` updates have begun: update `step` (counted from 0) will not
// begin before Resume. From then on a program that comes to it stands still, and OnBoundary is
// called. Answer with OnPledged.
struct PledgeBoundary {
  Epoch epoch = 0;
  uint32_t round = 0;
  uint64_t step = 0;
};
// Communicators::Decide. go: answer with OnPositions and then OnEntered once the decision holds; no
// operation of the program is waited for.
struct DecideCuts {
  Epoch epoch = 0;
  bool go = false;
};
// The pledge for the update boundary is forgotten; Resume follows if the program stands there.
struct ReleaseBoundary {
  Epoch epoch = 0;
};
// ARMED: once `step` updates are done, stream what is constant between updates. A joiner receives.
struct StartStream {
  Epoch epoch = 0;
  uint64_t step = 0;
};
// The program stands at the boundary: stream the rest, check everything; answer with OnStreamed.
struct FinishStream {
  Epoch epoch = 0;
};
// Tell by OnBoundary, now or as soon as the program stands at the boundary, what versions there
// are.
struct DescribeBoundary {};
// After a loss: bring this member's part of the new world to `version`; answer with OnStreamed.
struct RestoreFrom {
  Epoch epoch = 0;
  uint64_t version = 0;
  RestoreSources sources;
};
// COMMITTED. swap: only the epoch and the secret change (cuts were decided by DecideCuts).
// Otherwise, on the program's thread, which stands at the boundary: swap the communicators, adopt
// the new state, and answer with OnEntered; slot is empty when this member is not in the new world.
struct Adopt {
  WorldRecord record;
  TransitionKind kind = TransitionKind::kSwap;
  std::optional<uint32_t> slot;
};
// The epoch will not come: forget its plan, stream and generations.
struct AbandonEpoch {
  Epoch epoch = 0;
  std::string reason;
};
// Communicators::Retire; each generation that is gone shows in the next OnPositions.
struct RetireGenerations {
  std::vector<GenerationId> generations;
};
// Members were lost: abort the current generation of every communicator. From here on the program
// stands still at its next update boundary or recover call, until Resume.
struct AbortCurrent {
  std::string reason;
};
// Let the program go on: it stands at the boundary. Comes after Adopt, or after AbandonEpoch
// (kContinue).
enum class ResumeKind : uint8_t { kContinue, kWorldChanged, kRepeat, kLeave };
struct Resume {
  ResumeKind kind = ResumeKind::kContinue;
};
// Nothing can be saved, or this process is not part of the job any more: every waiting call returns
// an error with this reason. Nothing follows.
struct StopProcess {
  std::string reason;
};

using MemberAction =
    std::variant<SendMessage, EnterWorld, MintIds, MakePlan, BuildGenerations, PledgeCuts,
                 PledgeBoundary, DecideCuts, ReleaseBoundary, StartStream, FinishStream,
                 DescribeBoundary, RestoreFrom, Adopt, AbandonEpoch, RetireGenerations,
                 AbortCurrent, Resume, StopProcess>;

}  // namespace rewire
