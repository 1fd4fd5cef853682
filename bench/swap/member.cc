#include "bench/swap/member.h"

#include <dirent.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bench/swap/report_lines.h"
#include "bench/swap/windows.h"
#include "bench/swap/wire.h"
#include "bench/swap/workload.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/settings.h"
#include "reconfig/world/world.h"
#include "rewire_nccl_api.h"
#include "shim/core/device.h"
#include "shim/core/environment.h"
#include "shim/core/shim_communicators.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/real_nccl.h"
#include "shim/preload/virtual_communicator.h"

namespace rewire::bench {

namespace {

constexpr seconds kPatience(120);
constexpr size_t kSettled = 5;  // swaps before descriptors are counted

int64_t Entries(const char* folder) {
  DIR* dir = opendir(folder);
  int64_t n = 0;
  while (dir != nullptr && readdir(dir) != nullptr) ++n;
  if (dir != nullptr) closedir(dir);
  return n;
}

// Numbers of open descriptors and of threads.
struct Footprint {
  int64_t fds = Entries("/proc/self/fd");
  int64_t threads = Entries("/proc/self/task");
};

class MemberProcess {
 public:
  explicit MemberProcess(const MemberOptions& options) : options_(options) {}
  int Run();

 private:
  [[noreturn]] void Fail(const std::string& why);
  void Check(ncclResult_t result, const char* what) {
    if (result != ncclSuccess) Fail(std::string(what) + ": ncclResult " + std::to_string(result));
  }
  void Say(const Packet& packet) {
    if (!SendPacket(options_.fd, packet)) exit(1);
  }
  Packet Hear() {
    Packet packet;
    if (!ReceivePacket(options_.fd, &packet, Now() + kPatience)) exit(1);
    return packet;
  }
  void Meet() {
    Say({Say::kReady, 0, 0, 0, ""});
    if (Hear().say != Say::kGo) Fail("the leader did not say go");
  }
  ncclComm_t Init();
  void FirstOperation(ncclComm_t comm);
  void MeasureForeground();
  void Loop();
  void Look();
  void Participate();
  void Answer(const Packet& packet);
  void Summarize();
  void SayReport();

  const MemberOptions options_;
  const CudaDriver* cuda_ = nullptr;
  std::unique_ptr<shim::Device> device_;
  shim::ShimCommunicators* core_ = nullptr;
  std::unique_ptr<Workload> workload_;
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::vector<Operation> operations_;
  std::vector<SwapPlace> swaps_;  // owned by the participant's thread, read after its end
  uint64_t asked_at_ = 0;         // operations issued at the leader's last query
  uint64_t asked_before_ = 0;     // and at the query before
  SwapPlace next_;
  std::atomic<uint64_t> built_{0};
  // Owned by the participant's thread.
  Cut proposed_;
  Epoch entering_ = 0;
  bool retiring_ = false;
  std::vector<Footprint> footprints_;
  MemberReport report_;
};

void MemberProcess::Fail(const std::string& why) {
  static_cast<void>(SendPacket(options_.fd, {Say::kFailed, 0, 0, 0, why}));
  fprintf(stderr, "swap_perf: member %u: %s\n", options_.rank, why.c_str());
  _exit(1);
}

ncclComm_t MemberProcess::Init() {
  ncclUniqueId id;
  if (options_.rank == 0) {
    Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    Say({Say::kUniqueId, 0, 0, 0, std::string(id.internal, sizeof id.internal)});
  }
  const Packet packet = Hear();
  if (packet.bytes.size() != sizeof id.internal) Fail("the unique id is short");
  memcpy(id.internal, packet.bytes.data(), sizeof id.internal);
  ncclComm_t comm = nullptr;
  Check(ncclCommInitRank(&comm, static_cast<int>(options_.ranks), id,
                         static_cast<int>(options_.rank)),
        "ncclCommInitRank");
  return comm;
}

void MemberProcess::FirstOperation(ncclComm_t comm) {
  const Workload::Outcome outcome = workload_->Run(comm, 3, 0, false);
  Check(outcome.result, "the first operation");
}

void MemberProcess::MeasureForeground() {
  ncclComm_t comm = Init();
  FirstOperation(comm);
  for (uint32_t i = 0; i < options_.baselines; ++i) {
    Meet();
    const Time begun = Now();
    Check(ncclCommDestroy(comm), "ncclCommDestroy");
    comm = Init();
    FirstOperation(comm);
    report_.init_us.push_back(static_cast<double>(ToNanoseconds(Now() - begun)) / 1e3);
  }
  for (uint32_t i = 0; i < options_.baselines; ++i) {
    Meet();
    if (options_.rank + 1 < options_.ranks) {
      // The data for the child's world.
      Workload smaller(cuda_, options_.ranks - 1, options_.rank);
      const Time begun = Now();
      int leaving = static_cast<int>(options_.ranks) - 1;
      ncclComm_t child = nullptr;
      Check(ncclCommShrink(comm, &leaving, 1, &child, nullptr, NCCL_SHRINK_DEFAULT),
            "ncclCommShrink");
      const Workload::Outcome outcome = smaller.Run(child, 3, 0, false);
      Check(outcome.result, "the first operation after the shrink");
      if (outcome.wrong) Fail("wrong data after the shrink");
      report_.shrink_us.push_back(static_cast<double>(ToNanoseconds(Now() - begun)) / 1e3);
      Meet();
      Check(ncclCommDestroy(child), "ncclCommDestroy of the child");
    } else {
      Meet();
    }
    Check(ncclCommDestroy(comm), "ncclCommDestroy");
    comm = Init();
    FirstOperation(comm);
  }
  Meet();
  Check(ncclCommDestroy(comm), "ncclCommDestroy");
}

void MemberProcess::Loop() {
  pthread_setname_np(pthread_self(), "workload");
  auto* handle = reinterpret_cast<shim::VirtualCommunicator*>(comm_);
  uint64_t generation = 0;
  const Time begun = Now();
  for (uint64_t k = 0;; ++k) {
    const bool ask = stop_.load(std::memory_order_relaxed) && options_.rank == 0;
    ++report_.issued;
    const Workload::Outcome outcome = workload_->Run(comm_, k, generation, ask);
    Check(outcome.result, "an operation");
    ++report_.completed;
    report_.wrong += outcome.wrong ? 1 : 0;
    report_.stale += outcome.stale ? 1 : 0;
    operations_.push_back({static_cast<float>(outcome.seconds * 1e6),
                           static_cast<float>(outcome.call_cpu_us),
                           static_cast<double>(ToNanoseconds(Now() - begun)) / 1e3});
    // Only this thread's calls change the generation, so operation k ran on this generation.
    generation = handle->current.load(std::memory_order_acquire)->epoch;
    if (outcome.stop) break;
  }
  done_.store(true);
}

void MemberProcess::Answer(const Packet& packet) {
  auto* handle = reinterpret_cast<shim::VirtualCommunicator*>(comm_);
  switch (packet.say) {
    case Say::kMint: {
      const absl::StatusOr<std::string> id = core_->Mint(handle->id());
      if (!id.ok()) Fail(id.status().ToString());
      Say({Say::kUniqueId, 0, 0, 0, *id});
      return;
    }
    case Say::kBuild: {
      // The two queries before a build are the ends of its quiet stretch.
      next_ = {packet.a, asked_before_, asked_at_, 0, 0, 0};
      core_->Build(packet.a, {{handle->id(), options_.ranks, {options_.rank}, packet.bytes}},
                   Now() + kPatience, [this](const absl::Status& status) {
                     if (!status.ok()) Fail("the build: " + status.ToString());
                     built_.store(core_->Counters().at(0).issued);
                     Say({Say::kReady, 0, 0, 0, ""});
                   });
      return;
    }
    case Say::kQuery:
      asked_before_ = std::exchange(asked_at_, core_->Counters().at(0).issued);
      Say({Say::kCounter, asked_at_, 0, 0, ""});
      return;
    case Say::kPropose:
      proposed_ = {handle->id(), packet.b, packet.c};
      Say({Say::kPledged, core_->Pledge(packet.a, {proposed_}) ? 0u : 1u, 0, 0, ""});
      return;
    case Say::kDecide:
      if (packet.b != 0) {
        next_.built = built_.load();
        next_.warm = proposed_.warm;
        next_.cut = proposed_.cut;
        swaps_.push_back(next_);
      }
      core_->Decide(packet.a, packet.b != 0);
      entering_ = packet.b != 0 ? packet.a : 0;
      return;
    case Say::kRetire: {
      std::vector<elastic::GenerationId> old;
      const elastic::Position position =
          core_->Positions().at(0);  // must outlive the loop over its epochs
      for (const Epoch epoch : position.old) old.push_back({epoch, handle->id()});
      core_->Retire(std::move(old));
      retiring_ = true;
      return;
    }
    case Say::kStop:
      stop_.store(true);
      return;
    default:
      Fail("the leader said something unknown");
  }
}

// Checks whether the cut was passed, or the old generation is gone.
void MemberProcess::Look() {
  if (entering_ == 0 && !retiring_) return;
  const elastic::Position position = core_->Positions().at(0);
  if (entering_ != 0 && position.in_use == entering_) {
    entering_ = 0;
    Say({Say::kEntered, position.host_waits, 0, 0, ""});
  }
  if (retiring_ && position.old.empty()) {
    retiring_ = false;
    footprints_.emplace_back();
    Say({Say::kRetired, 0, 0, 0, ""});
  }
}

void MemberProcess::Participate() {
  while (!done_.load()) {
    Packet packet;
    const bool waits = entering_ != 0 || retiring_;
    if (ReceivePacket(options_.fd, &packet, Now() + milliseconds(waits ? 5 : 50))) Answer(packet);
    Look();
  }
}

void MemberProcess::Summarize() {
  DescribeOperations(operations_, swaps_, &report_);
  const shim::CoreCounters& counters = core_->counters();
  report_.swaps = counters.swaps.load();
  report_.host_waits = counters.host_waits.load();
  report_.nice_refused = counters.nice_refused.load();
  const uint64_t builds = std::max<uint64_t>(counters.builds.load(), 1);
  report_.build_ms =
      static_cast<double>(counters.build_ns.load()) / 1e6 / static_cast<double>(builds);
  if (footprints_.size() > kSettled) {
    report_.leaked_fds =
        std::max<int64_t>(0, footprints_.back().fds - footprints_[kSettled - 1].fds);
    report_.leaked_threads =
        std::max<int64_t>(0, footprints_.back().threads - footprints_[kSettled - 1].threads);
  }
}

void MemberProcess::SayReport() {
  const std::string text = report_.Encode();
  constexpr size_t kPart = 32 << 10;
  for (size_t at = 0; at < text.size(); at += kPart) {
    Say({Say::kResult, at + kPart >= text.size() ? 1u : 0u, 0, 0, text.substr(at, kPart)});
  }
}

int MemberProcess::Run() {
  std::string error;
  cuda_ = CudaDriver::Get(&error);
  if (cuda_ == nullptr) Fail(error);
  CUdevice device = 0;
  CUcontext context = nullptr;
  int devices = 0;
  if (cuda_->Init(0) != CUDA_SUCCESS || cuda_->DeviceGetCount(&devices) != CUDA_SUCCESS ||
      devices == 0 ||
      cuda_->DeviceGet(&device, static_cast<int>(options_.rank) % devices) != CUDA_SUCCESS ||
      cuda_->DevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
      cuda_->CtxSetCurrent(context) != CUDA_SUCCESS) {
    Fail("no device");
  }
  device_ = shim::DeviceOf(cuda_);
  const Settings& settings = Settings::Get();
  core_ = new shim::ShimCommunicators(
      shim::NcclCalls::From(*shim::Real()), shim::Services(), device_.get(),
      {milliseconds(settings.build_ms()), milliseconds(settings.decision_ms()),
       milliseconds(settings.retire_ms())});
  shim::SetCore(shim::TableOf(core_));
  workload_ = std::make_unique<Workload>(cuda_, options_.ranks, options_.rank);
  operations_.reserve(1 << 20);

  MeasureForeground();
  comm_ = Init();
  std::thread participant([this] { Participate(); });
  Loop();
  participant.join();
  Summarize();
  SayReport();
  Meet();
  Check(ncclCommDestroy(comm_), "ncclCommDestroy");
  shim::SetCore(nullptr);
  delete core_;
  return 0;
}

}  // namespace

int RunMember(const MemberOptions& options) { return MemberProcess(options).Run(); }

}  // namespace rewire::bench
