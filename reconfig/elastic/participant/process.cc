// Makes, finds and ends the participant of a process, and reads its counters; see process.h.
// Thread-safe.
#include "reconfig/elastic/participant/process.h"

#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/settings.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/elastic/participant/participant.h"

namespace rewire::elastic {
namespace {

constexpr Duration kConnectDeadline = seconds(10);

// For librewire-net.so and librewire-moe.so, and for copies of them in other folders.
std::array<std::atomic<ReadCounters>, 8> libraries{};

std::atomic<Communicators*> communicators{nullptr};
// A forked child has no thread of Rewire, and the fork may have happened while a thread held a
// lock.
std::atomic<bool> forked{false};
std::atomic<bool> ended{false};
std::atomic<bool> cooperating{false};

Mutex* StartMutex() {
  static Mutex* const mutex = new Mutex;  // used by threads that outlive main()
  return mutex;
}

// Not used in a forked child, because another thread of the parent may have held the mutex.
Mutex* CurrentMutex() {
  static Mutex* const mutex = new Mutex;
  return mutex;
}

// Never destroyed: communicators report to the participant until the process ends.
std::shared_ptr<Participant>* Current() {
  static auto* const current = new std::shared_ptr<Participant>;
  return current;
}

// Passes the events of the shim's core to the present participant, if there is one.
class Events final : public CommunicatorEvents {
 public:
  void Created(const CommunicatorCreated& created) override {
    if (const auto p = CurrentParticipant()) p->Created(created);
  }
  void Destroyed(const CommunicatorId& communicator, uint32_t rank) override {
    if (const auto p = CurrentParticipant()) p->Destroyed(communicator, rank);
  }
  void Pinned(const CommunicatorId& communicator, const std::string& reason) override {
    if (const auto p = CurrentParticipant()) p->Pinned(communicator, reason);
  }
  void AwaitSent() override {
    if (const auto p = CurrentParticipant()) p->AwaitSent(Now() + seconds(1));
  }
  bool ComesWithBuild(const CommunicatorId& communicator) override {
    const auto p = CurrentParticipant();
    return p != nullptr && p->ComesWithBuild(communicator);
  }
  void Moved() override {
    if (const auto p = CurrentParticipant()) p->Moved();
  }
  bool Stopped() override {
    const auto p = CurrentParticipant();
    return p == nullptr || p->stopped();
  }
};

absl::StatusOr<ParticipantOptions> OptionsFromSettings(bool cooperates) {
  const Settings& settings = Settings::Get();
  if (!settings.Error().empty()) return absl::InvalidArgumentError(settings.Error());
  if (settings.member() < 0) {
    return absl::InvalidArgumentError(
        "REWIRE_MEMBER: not set, but REWIRE_SOCKET is (`rewire run` sets both)");
  }
  ParticipantOptions options;
  options.socket = settings.socket();
  options.member = static_cast<MemberId>(settings.member());
  options.cooperates = cooperates;
  options.heartbeat = milliseconds(settings.heartbeat_ms());
  options.boundary = milliseconds(settings.boundary_ms());
  options.build = milliseconds(settings.build_ms());
  options.silence = milliseconds(settings.silence_ms());
  options.budget_bytes = static_cast<uint64_t>(settings.budget_mb()) << 20;
  options.buddy = settings.buddy() == 1;
  options.peer_copy = settings.peer_copy() == 1;
  return options;
}

// Without this message, the end of the connection is the death of the process. A program that uses
// the C API calls rewireDetach().
void EndWell(int status, void* /*argument*/) {
  if ((status & 0xff) != 0) return;
  if (const auto p = CurrentParticipant()) p->Leave(Now() + seconds(1));
}

// The program's objects are destroyed after this handler.
void EndUseOnExit(int /*status*/, void* /*argument*/) { EndUse(); }

}  // namespace

void SetCommunicators(Communicators* owner) { communicators.store(owner); }

Communicators* GetCommunicators() { return communicators.load(); }

bool InForkedChild() { return forked.load(); }

std::shared_ptr<Participant> CurrentParticipant() {
  if (forked.load()) return nullptr;
  MutexLock lock(CurrentMutex());
  return *Current();
}

absl::StatusOr<std::shared_ptr<Participant>> StartParticipant(bool cooperates) {
  if (forked.load()) {
    return absl::FailedPreconditionError(
        "attach: this process is a forked child of a member and not a member");
  }
  MutexLock lock(StartMutex());
  if (std::shared_ptr<Participant> p = CurrentParticipant()) {
    if (cooperates && !cooperating.load()) {
      return absl::FailedPreconditionError(
          "rewireAttach: must be called before the first communicator is made");
    }
    return p;
  }
  if (ended.load()) {
    return absl::FailedPreconditionError(
        "attach: this process has detached and cannot attach again");
  }
  absl::StatusOr<ParticipantOptions> options = OptionsFromSettings(cooperates);
  if (!options.ok()) return options.status();
  auto participant = Participant::Start(*options);
  if (!participant.ok()) return participant.status();
  pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  // It runs before the destructors of the objects that exist by now.
  on_exit(cooperates ? EndUseOnExit : EndWell, nullptr);
  cooperating = cooperates;
  MutexLock publish(CurrentMutex());
  *Current() = *std::move(participant);
  return *Current();
}

void EndUse() {
  if (const auto p = CurrentParticipant()) p->EndProgram(Now() + kProgramEnd);
}

void EndUseAtExit() {
  static std::atomic<bool> registered{false};
  if (!registered.exchange(true)) on_exit(EndUseOnExit, nullptr);
}

void EndParticipant() {
  if (forked.load()) return;
  MutexLock lock(StartMutex());
  ended = true;
  std::shared_ptr<Participant> participant;
  {
    MutexLock unpublish(CurrentMutex());
    participant.swap(*Current());
  }
  // A thread that reports a communicator may hold the participant a little longer.
  if (participant != nullptr) participant->End();
}

absl::StatusOr<CommunicatorEvents*> EnsureParticipant() {
  static Events* const events = new Events;
  const Settings& settings = Settings::Get();
  // A process that has detached, or a forked child, uses NCCL without the agent.
  if (settings.socket().empty() || settings.disable() != 0 || forked.load() || ended.load()) {
    return events;
  }
  REWIRE_ASSIGN_OR_RETURN(const auto participant, StartParticipant(false));
  REWIRE_RETURN_IF_ERROR(participant->WaitConnected(Now() + kConnectDeadline));
  return events;
}

absl::StatusOr<UniqueIdBytes> MintUniqueId() {
  if (Communicators* comms = GetCommunicators()) return comms->Mint(kUpdateBoundary);
  // Before the first communicator there is no core: the program's own NCCL has the function.
  using GetUniqueId = ncclResult_t (*)(ncclUniqueId*);
  const auto get = reinterpret_cast<GetUniqueId>(dlsym(RTLD_DEFAULT, "ncclGetUniqueId"));
  if (get == nullptr) {
    return absl::FailedPreconditionError(
        "rewireUniqueId: ncclGetUniqueId was not found: NCCL is not loaded in this process");
  }
  ncclUniqueId id;
  if (const ncclResult_t result = get(&id); result != ncclSuccess) {
    return absl::UnavailableError(
        absl::StrCat("ncclGetUniqueId: ncclResult=", static_cast<int>(result)));
  }
  return std::string(id.internal, sizeof id.internal);
}

std::vector<CounterValue> ProcessCounters() {
  std::vector<CounterValue> all = CounterValues();
  for (const std::atomic<ReadCounters>& library : libraries) {
    const ReadCounters read = library.load();
    if (read == nullptr) break;
    const size_t own = all.size();
    all.resize(own + CounterTable().size());
    all.resize(own + read(all.data() + own, CounterTable().size()));
  }
  return all;
}

}  // namespace rewire::elastic

extern "C" __attribute__((visibility("default"))) void rewire_add_counters(
    rewire::ReadCounters read) noexcept {
  for (std::atomic<rewire::ReadCounters>& library : rewire::elastic::libraries) {
    rewire::ReadCounters there = nullptr;
    if (library.compare_exchange_strong(there, read) || there == read) return;
  }
}
