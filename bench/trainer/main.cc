// gpt_train: one member of a training job. See --help.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "bench/trainer/checkpoint.h"
#include "bench/trainer/rendezvous.h"
#include "bench/trainer/trainer.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

constexpr Duration kRendezvous = seconds(60);

// The initial place of this process, from Rewire or from the environment.
struct Entry {
  Place place;
  uint32_t member = 0;
  bool joining = false;
};

absl::StatusOr<Entry> Enter(RewireSession* session) {
  Entry e;
  if (session == nullptr) {
    REWIRE_ASSIGN_OR_RETURN(e.place, Place::FromEnvironment());
    e.member = static_cast<uint32_t>(e.place.slot);
    return e;
  }
  REWIRE_ASSIGN_OR_RETURN(e.place.local_rank, Place::LocalRank());
  REWIRE_ASSIGN_OR_RETURN(const rewireWorld_t world, session->World());
  e.place.slot = static_cast<int>(world.slot);
  e.place.slots = static_cast<int>(world.slots);
  e.member = world.member;
  e.joining = world.joining != 0;
  return e;
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(const Device& device, const Place& place,
                                                      RewireSession* session) {
  ncclUniqueId id;
  if (session != nullptr) {
    REWIRE_ASSIGN_OR_RETURN(id, session->UniqueId("world"));
  } else {
    REWIRE_ASSIGN_OR_RETURN(id, ShareUniqueId(place, kRendezvous, Communicator::MintId));
  }
  return Communicator::Create(device, id, place.slots, place.slot);
}

absl::Status Finish(const Args& args, const Trainer& trainer, TrainingState& state,
                    Communicator& comm, StepLog& log) {
  std::string hash = "-";
  if (!args.save.empty()) {
    REWIRE_RETURN_IF_ERROR(SaveCheckpoint(args, state, log));
    log.Phase("saved", MonotonicNs());
  } else {
    REWIRE_ASSIGN_OR_RETURN(const uint64_t h, state.Hash(comm));
    hash = absl::StrFormat("%016x", h);
  }
  if (state.slot == 0) {
    const double loss = trainer.Loss();
    absl::PrintF("final step %u loss %.9g bits %s state_hash %s\n", state.progress.step, loss,
                 LossBits(loss), hash);
    fflush(stdout);
  }
  return absl::OkStatus();
}

absl::Status Train(const Args& args, StepLog& log) {
  std::unique_ptr<RewireSession> session;
  const char* socket = std::getenv("REWIRE_SOCKET");
  if (!args.no_rewire && socket != nullptr && *socket != '\0') {
    REWIRE_ASSIGN_OR_RETURN(session, RewireSession::Attach());
  }
  log.Phase("attach", MonotonicNs());
  REWIRE_ASSIGN_OR_RETURN(const Sampler sampler,
                          Sampler::Open(args.data, args.model.context, args.seed));
  REWIRE_ASSIGN_OR_RETURN(const Entry entry, Enter(session.get()));
  if (!args.log.empty()) REWIRE_RETURN_IF_ERROR(log.Open(args.log, entry.member));
  const Place& place = entry.place;
  if (place.slots > kMaxSlots) return absl::InvalidArgumentError("too large a world");

  const Model<float> model(args.model);
  REWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, Device::Open(place.local_rank));
  std::unique_ptr<TrainingState> state;
  // Detaches before the state is destroyed, on every path, because Rewire uses the state.
  const auto detach = absl::MakeCleanup([&session] { session.reset(); });
  const auto make_state = [&]() -> absl::Status {
    REWIRE_ASSIGN_OR_RETURN(state,
                            TrainingState::Create(args, *device, model, place.slots, place.slot));
    return absl::OkStatus();
  };
  // A joiner registers its state before its communicator is built with the next world's, because
  // the change's plan needs the state. The other members register after their state exists.
  if (entry.joining) {
    REWIRE_RETURN_IF_ERROR(make_state());
    REWIRE_RETURN_IF_ERROR(session->Register(*state));
  }
  REWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm,
                          Connect(*device, place, session.get()));
  log.Phase("nccl", MonotonicNs());
  if (!entry.joining) {
    REWIRE_RETURN_IF_ERROR(make_state());
    if (args.load.empty()) {
      REWIRE_RETURN_IF_ERROR(state->Initialise(*comm, args.seed));
    } else {
      REWIRE_RETURN_IF_ERROR(LoadCheckpoint(args, *state));
      REWIRE_RETURN_IF_ERROR(state->PublishLoadedWeights(*comm));
    }
    if (session != nullptr) REWIRE_RETURN_IF_ERROR(session->Register(*state));
  }
  log.Phase("loaded", MonotonicNs());

  GradientPass pass(args, model, sampler);
  Trainer trainer(args, pass, *state, *comm, session.get(), log);
  REWIRE_ASSIGN_OR_RETURN(const Trainer::End end, trainer.Run(entry.joining));
  if (end == Trainer::End::kLeft) {
    // Freeing this process's memory takes a while, so the remaining members get priority.
    setpriority(PRIO_PROCESS, 0, 10);
    return absl::OkStatus();
  }
  return Finish(args, trainer, *state, *comm, log);
}

int Main(int argc, char** argv) {
  const int64_t main_ns = MonotonicNs();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const absl::StatusOr<Args> args = ParseArgs(arguments);
  if (!args.ok()) {
    absl::FPrintF(stderr, "gpt_train: %s\n", std::string(args.status().message()));
    return 2;
  }
  if (args->help) {
    absl::PrintF("%s", Usage());
    return 0;
  }
  StepLog log;
  log.Phase("start", args->t0_ns > 0 ? args->t0_ns : ProcessStartNs());
  log.Phase("main", main_ns);
  const absl::Status status = Train(*args, log);
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "gpt_train: %s\n", std::string(status.message()));
  return 1;
}

}  // namespace
}  // namespace rewire::trainer

int main(int argc, char** argv) { return rewire::trainer::Main(argc, argv); }
