#include "tests/unit/shim/core/stage.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "shim/core/build_thread.h"

namespace rewire::shim {

namespace {

std::atomic<int> live{0};
std::atomic<ncclResult_t> replay_result{ncclSuccess};
std::atomic<uint64_t> reported_losses{0};
std::atomic<bool> registers{false};

Generation* NewGeneration(uint64_t epoch, int ranks, int rank) noexcept {
  auto* generation = new Generation;
  generation->epoch = epoch;
  generation->ranks.store(ranks);
  generation->rank.store(rank);
  live.fetch_add(1);
  return generation;
}
ncclResult_t Replay(VirtualCommunicator* /*comm*/, Generation* /*generation*/) noexcept {
  return replay_result.load();
}
bool NeedsRegistration(VirtualCommunicator* /*comm*/, const Generation* /*generation*/) noexcept {
  return registers.load();
}
Generation* Publish(VirtualCommunicator* comm, Generation* next) noexcept {
  return comm->current.exchange(next);
}
bool Quiesce(Generation* generation, int64_t timeout_ms) noexcept {
  const Time until = Now() + milliseconds(timeout_ms);
  while (generation->fixed.load() != 0) {
    if (Now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}
void FreeGeneration(Generation* generation) noexcept {
  // The real service does this when no thread is inside; the fake waits.
  if (!Quiesce(generation, 20000)) abort();
  delete generation;
  live.fetch_sub(1);
}
uint64_t Pledge(VirtualCommunicator* comm, uint64_t stop_at) noexcept {
  comm->stop_at.store(stop_at, std::memory_order_seq_cst);
  return comm->issued.load(std::memory_order_seq_cst);
}

uint64_t ReportedLosses() noexcept { return reported_losses.load(); }

}  // namespace

bool Eventually(const std::function<bool()>& condition, Duration within) {
  const Time until = Now() + within;
  while (!condition()) {
    if (Now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

const ShimServices* FakeServices::Get() {
  static constexpr ShimServices kServices = {NewGeneration, Replay,        NeedsRegistration,
                                             Publish,       Quiesce,       FreeGeneration,
                                             Pledge,        ReportedLosses};
  return &kServices;
}
void FakeServices::ReportLoss() { reported_losses.fetch_add(1); }
int FakeServices::live_generations() { return live.load(); }
void FakeServices::ForgetGenerations() { live.store(0); }
void FakeServices::SetRegisters(bool value) { registers.store(value); }
void FakeServices::SetReplayResult(ncclResult_t result) { replay_result.store(result); }

void RecordedEvents::Created(const elastic::CommunicatorCreated& c) {
  MutexLock lock(&mutex);
  created.push_back(c);
}
void RecordedEvents::Destroyed(const CommunicatorId& communicator, uint32_t /*rank*/) {
  MutexLock lock(&mutex);
  destroyed.push_back(communicator);
}
void RecordedEvents::Pinned(const CommunicatorId& /*communicator*/, const std::string& reason) {
  MutexLock lock(&mutex);
  pinned.push_back(reason);
}
bool RecordedEvents::ComesWithBuild(const CommunicatorId& /*communicator*/) {
  MutexLock lock(&mutex);
  return joining;
}
bool RecordedEvents::Stopped() {
  MutexLock lock(&mutex);
  return stopped;
}
void RecordedEvents::Undecided(Epoch epoch) {
  {
    MutexLock lock(&mutex);
    undecided.push_back(epoch);
  }
  if (on_undecided) on_undecided();
}

Program::Program(ShimCommunicators* core, uint64_t id, bool blocking) : core_(core) {
  comm.first_id = {id, id};
  comm.recipe.blocking = blocking;
  if (!blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    comm.recipe.config.resize(sizeof config);
    std::memcpy(comm.recipe.config.data(), &config, sizeof config);
  }
}

Program::~Program() {
  if (open_) Close();
}

ncclResult_t Program::Create(int ranks, int rank) {
  Generation* first = NewGeneration(0, ranks, rank);
  comm.current.store(first);
  comm.magic.store(Magic::kOpen);
  open_ = true;
  ncclResult_t result = ncclSuccess;
  if (core_->OnCreated(&comm, &result) != 0) return result;
  // As in shim/preload/entries_create.cc, the thread counts as inside until the call has returned.
  first->fixed.fetch_add(1);
  const uint64_t free_before = core_->FreeMemory(&comm);
  result = FakeNccl::Calls().CommInitRankConfig(&first->real, ranks, {}, rank,
                                                const_cast<ncclConfig_t*>(comm.recipe.Config()));
  if (result == ncclSuccess) first->device.store(0);
  if (first->state.load() == GenerationState::kAborted) result = ncclRemoteError;
  const bool taken = result == ncclSuccess || result == ncclInProgress;
  first->fixed.fetch_sub(1);
  if (!taken) {
    Close();
  } else if (result == ncclSuccess && free_before != 0) {
    core_->OnTookMemory(&comm, free_before);
  }
  return result;
}

ncclResult_t Program::Issue(size_t tag, uintptr_t stream) {
  const CallSite site{reinterpret_cast<cudaStream_t>(stream), 0};
  // As in shim/preload/issue.h, the thread checks the cut when it has entered the generation.
  Generation* generation = nullptr;
  for (int cuts = 0;;) {
    generation = comm.current.load();
    if (generation != nullptr) generation->fixed.fetch_add(1);
    const bool still = comm.current.load() == generation;
    const bool at_cut = cuts < kCutsPerCall && comm.issued.load() >= comm.stop_at.load();
    if (still && !at_cut) break;
    if (generation != nullptr) generation->fixed.fetch_sub(1);
    if (!still) continue;
    ++cuts;
    const ncclResult_t result = core_->AtCut(&comm, site);
    if (result != ncclSuccess) return result;
  }
  if (generation == nullptr) return ncclInvalidUsage;
  ncclResult_t result = ncclSuccess;
  switch (generation->state.load()) {
    case GenerationState::kAborted:
      result = ncclRemoteError;
      break;
    case GenerationState::kClosed:
      result = ncclInvalidUsage;
      break;
    case GenerationState::kOpen:
      result = FakeNccl::Operate(generation->Real(), tag);
  }
  if (result == ncclSuccess || result == ncclInProgress) {
    // Counted before the thread leaves: a pledge must not take the operation for one to come.
    comm.issued.store(comm.issued.load() + 1);
    if (comm.issued.load() == comm.stop_at.load()) core_->BeforeCut(&comm, site);
    comm.last_stream.store(site.stream);
  }
  generation->fixed.fetch_sub(1);
  return result;
}

void Program::Close() {
  core_->OnClosing(&comm, false);
  open_ = false;
  if (Generation* last = comm.current.exchange(nullptr)) {
    if (last->Real() != nullptr) static_cast<void>(FakeNccl::Calls().CommDestroy(last->Real()));
    FreeGeneration(last);
  }
}

std::vector<size_t> Program::OperationsOf(ncclComm_t real) const {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  return nccl.Of(real)->operations;
}

Stage::Stage() {
  FakeNccl::Reset();
  FakeServices::SetReplayResult(ncclSuccess);
  Start({});
}

Stage::~Stage() {
  core_.reset();
  EXPECT_TRUE(Eventually([] { return FakeServices::live_generations() == 0; }));
  EXPECT_EQ(FakeNccl::Get().misuses, 0) << "a call on a communicator that had ended";
  EXPECT_EQ(device_.used_after_destroy(), 0);
  EXPECT_EQ(device_.recorded_elsewhere(), 0);
}

void Stage::Start(ShimCommunicators::Options options, bool abort_frees_at_group_end) {
  core_ = std::make_unique<ShimCommunicators>(FakeNccl::Calls(abort_frees_at_group_end),
                                              FakeServices::Get(), &device_, options);
  core_->SetEvents(&events_);
}

elastic::Position Stage::PositionOf(const Program& program) {
  for (const elastic::Position& position : core_->Positions()) {
    if (position.communicator == program.comm.id()) return position;
  }
  return {};
}

std::optional<uint64_t> Stage::HostWaits(const Program& program, Epoch epoch) {
  if (!Eventually([&] { return PositionOf(program).in_use == epoch; })) return std::nullopt;
  return PositionOf(program).host_waits;
}

std::vector<elastic::GenerationId> Stage::Old() {
  std::vector<elastic::GenerationId> old;
  for (const elastic::Position& position : core_->Positions()) {
    for (const Epoch epoch : position.old) old.push_back({epoch, position.communicator});
  }
  std::sort(old.begin(), old.end());
  return old;
}

bool Stage::RetireAll() {
  core_->Retire(Old());
  return Eventually([&] { return Old().empty(); });
}

elastic::CommunicatorBuild Stage::BuildOf(const Program& program, uint32_t ranks, uint32_t rank,
                                          const std::string& usage) {
  return {program.comm.id(), ranks, {rank}, std::string(NCCL_UNIQUE_ID_BYTES, 'u') + usage};
}

absl::Status Stage::Prepare(Epoch epoch, const std::vector<elastic::CommunicatorBuild>& builds,
                            Duration within) {
  Answer<absl::Status> built;
  core_->Build(epoch, builds, Now() + within, built.Callback());
  return built.Wait().value_or(absl::DeadlineExceededError("no answer"));
}

void Stage::Swap(const Program& program, Epoch epoch, uint64_t warm, uint64_t cut) {
  ASSERT_TRUE(Prepare(epoch, {BuildOf(program, 2, 0)}).ok());
  ASSERT_EQ(WhyNot(epoch, {{program.comm.id(), warm, cut}}), "");
  core_->Decide(epoch, true);
}

bool Stage::MayRaisePriority() {
  bool may = false;
  std::thread([&may] {
    const int base = OwnNiceness();
    SetOwnNiceness(base + 1);
    SetOwnNiceness(base);
    may = OwnNiceness() == base;
  }).join();
  return may;
}

std::vector<std::string> Stage::Calls() {
  MutexLock lock(&FakeNccl::Get().mutex);
  return FakeNccl::Get().calls;
}

}  // namespace rewire::shim
