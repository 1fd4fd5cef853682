// The trainer's own step (forward, backward, reduction, update), on one state and one device of one
// process, alternately with and without Rewire. With Rewire, the collectives use the shim and a
// virtual communicator, and the update uses rewireUpdate(), with every tensor registered and a live
// agent. Without Rewire, the calls go directly to the library on another communicator, with a plain
// call of the same update. The order within a round is a palindrome, so that drift affects every
// way alike.
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "bench/overhead/member.h"
#include "bench/overhead/sides.h"
#include "bench/overhead/work_of_rewire.h"
#include "bench/trainer/gradient.h"
#include "bench/trainer/rendezvous.h"
#include "bench/trainer/session.h"
#include "bench/trainer/step_log.h"
#include "bench/trainer/update.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

using trainer::Communicator;
using trainer::Place;
using trainer::RewireSession;

constexpr Duration kRendezvous = seconds(60);
constexpr uint64_t kSettle = 8;  // rounds before the first counted round

class Steps {
 public:
  Steps(const MemberOptions& options, const trainer::Args& args)
      : options_(options), args_(args), model_(args.model) {}

  absl::StatusOr<Samples> Run() {
    REWIRE_RETURN_IF_ERROR(FindSides());
    REWIRE_ASSIGN_OR_RETURN(session_, RewireSession::Attach());
    // The session must end before its state, which Rewire uses.
    const auto detach = absl::MakeCleanup([this] { session_.reset(); });
    REWIRE_RETURN_IF_ERROR(Prepare());
    for (uint64_t i = 0; i < kSettle; ++i) REWIRE_RETURN_IF_ERROR(DoRound(i, nullptr));
    samples_.steps_of_round = 2 * Counted();
    const int64_t began = trainer::MonotonicNs();
    const int64_t threads = RewireThreadsCpuNs();
    const int64_t agent = RewireProcessesCpuNs();
    for (uint64_t i = 0; i < options_.rounds; ++i) {
      Round round;
      REWIRE_RETURN_IF_ERROR(DoRound(i, &round));
      samples_.rounds.push_back(round);
    }
    samples_.threads_cpu_ns = RewireThreadsCpuNs() - threads;
    samples_.agent_cpu_ns = RewireProcessesCpuNs() - agent;
    samples_.elapsed_ns = trainer::MonotonicNs() - began;
    samples_.rewire_steps = 2 * options_.block * options_.rounds;
    Take(Side::kRewire);
    comms_[static_cast<int>(Way::kRewire)].reset();
    Take(Side::kPlain);
    for (auto& comm : comms_) comm.reset();
    return std::move(samples_);
  }

 private:
  absl::Status Prepare() {
    REWIRE_ASSIGN_OR_RETURN(sampler_,
                            trainer::Sampler::Open(args_.data, args_.model.context, args_.seed));
    pass_ = std::make_unique<trainer::GradientPass>(args_, model_, *sampler_);
    REWIRE_ASSIGN_OR_RETURN(Place place, Place::FromEnvironment());
    REWIRE_ASSIGN_OR_RETURN(const rewireWorld_t world, session_->World());
    place.slot = static_cast<int>(world.slot);
    REWIRE_ASSIGN_OR_RETURN(device_, trainer::Device::Open(place.local_rank));
    REWIRE_ASSIGN_OR_RETURN(
        state_, trainer::TrainingState::Create(args_, *device_, model_, place.slots, place.slot));
    Take(Side::kPlain);
    REWIRE_ASSIGN_OR_RETURN(ncclUniqueId id,
                            ShareUniqueId(place, kRendezvous, Communicator::MintId));
    const auto create = [&](Way way) -> absl::Status {
      REWIRE_ASSIGN_OR_RETURN(comms_[static_cast<int>(way)],
                              Communicator::Create(*device_, id, place.slots, place.slot));
      return absl::OkStatus();
    };
    REWIRE_RETURN_IF_ERROR(create(Way::kPlain));
    Take(Side::kRewire);
    REWIRE_ASSIGN_OR_RETURN(id, session_->UniqueId("world"));
    REWIRE_RETURN_IF_ERROR(create(Way::kRewire));
    Take(Side::kPlain);
    REWIRE_ASSIGN_OR_RETURN(id, NextId(place.slot));
    REWIRE_RETURN_IF_ERROR(create(Way::kControl));
    REWIRE_RETURN_IF_ERROR(state_->Initialise(Plain(), args_.seed));
    return session_->Register(*state_);
  }

  Communicator& Plain() { return *comms_[static_cast<int>(Way::kPlain)]; }

  // Sends slot 0's id over the existing communicator: eight words at a time, zeros from the others.
  absl::StatusOr<ncclUniqueId> NextId(int slot) {
    ncclUniqueId id{};
    if (slot == 0) {
      REWIRE_ASSIGN_OR_RETURN(id, Communicator::MintId());
    }
    for (size_t at = 0; at < sizeof id.internal; at += 64) {
      memcpy(state_->small_host.data(), id.internal + at, 64);
      REWIRE_RETURN_IF_ERROR(state_->ReduceSmall(Plain(), 8));
      memcpy(id.internal + at, state_->small_host.data(), 64);
    }
    return id;
  }

  [[nodiscard]] uint64_t Counted() const {
    return options_.block > 1 ? options_.block - 1 : options_.block;
  }

  absl::Status DoRound(uint64_t number, Round* round) {
    constexpr Way kOrders[2][6] = {
        {Way::kPlain, Way::kRewire, Way::kControl, Way::kControl, Way::kRewire, Way::kPlain},
        {Way::kPlain, Way::kControl, Way::kRewire, Way::kRewire, Way::kControl, Way::kPlain}};
    for (const Way way : kOrders[number % 2]) {
      Take(way == Way::kRewire ? Side::kRewire : Side::kPlain);
      for (uint64_t i = 0; i < options_.block; ++i) {
        const int64_t wall = trainer::MonotonicNs();
        const int64_t cpu = trainer::ThreadCpuNs();
        REWIRE_RETURN_IF_ERROR(Step(way));
        const int64_t cpu_ns = trainer::ThreadCpuNs() - cpu;
        const int64_t wall_ns = trainer::MonotonicNs() - wall;
        if (round == nullptr || i + Counted() < options_.block) continue;
        round->cpu_ns[static_cast<int>(way)] += cpu_ns;
        round->wall_ns[static_cast<int>(way)] += wall_ns;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Step(Way way) {
    Communicator& comm = *comms_[static_cast<int>(way)];
    REWIRE_RETURN_IF_ERROR(pass_->Run(*state_, comm));
    const std::function<absl::Status()> update = [&] { return ApplyUpdate(args_, *state_, comm); };
    if (way != Way::kRewire) return update();
    REWIRE_ASSIGN_OR_RETURN(const rewireOutcome_t outcome, session_->Update(update));
    if (outcome.kind == rewireContinue) return absl::OkStatus();
    return absl::FailedPreconditionError("the world changed while the overhead was measured");
  }

  const MemberOptions options_;
  const trainer::Args args_;
  const trainer::Model<float> model_;
  std::optional<trainer::Sampler> sampler_;
  std::unique_ptr<trainer::GradientPass> pass_;
  std::unique_ptr<trainer::Device> device_;
  std::unique_ptr<trainer::TrainingState> state_;
  std::array<std::unique_ptr<Communicator>, kWays> comms_;
  std::unique_ptr<RewireSession> session_;
  Samples samples_;
};

}  // namespace

absl::StatusOr<Samples> MeasureSteps(const MemberOptions& options) {
  REWIRE_ASSIGN_OR_RETURN(trainer::Args args, trainer::ParseArgs({}));
  args.zero = options.zero;
  return Steps(options, args).Run();
}

}  // namespace rewire::bench
