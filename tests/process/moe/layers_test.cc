#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/moe-exec/layer_run.h"
#include "tests/simgpu/cuda/extensions.h"

namespace rewire::bench {
namespace {

using testing::Each;

// Options of a small and uneven run: four processes, 32 experts. Plans follow measured speeds, and
// virtual time makes the measured speeds independent of the machine's load. In real time, one late
// copy can make every later plan empty.
LayerRunOptions Small(const std::string& name) {
  ::setenv("SIMGPU_DEVICES", "4", 1);
  ::setenv("SIMGPU_LOCAL_MBPS", "500", 1);  // enables virtual time
  LayerRunOptions o;
  o.simgpu = REWIRE_SIMGPU;
  o.name = "test-" + std::to_string(::getpid()) + "-" + name;
  o.trace.devices = 4;
  o.trace.experts = 32;
  o.trace.sigma = 1.5;
  o.expert = {8, 6};
  o.micro_batches = 3;
  o.step = 2;
  o.balancer.patience = seconds(20);
  o.balancer.meeting = seconds(60);
  return o;
}

// A run without dispatch uses real time: virtual time is meaningless there (LayerRunOptions).
LayerRunOptions SmallWithoutDispatch(const std::string& name) {
  LayerRunOptions o = Small(name);
  ::unsetenv("SIMGPU_LOCAL_MBPS");
  o.dispatch = false;
  return o;
}

std::vector<int> RunAll(Crew& crew, const LayerRunOptions& o) {
  return crew.Run([&](uint32_t rank) { return RunLayers(crew, o, rank); }, seconds(120));
}

TEST(LayersTest, ResultsDoNotDependOnComputingDevice) {
  LayerRunOptions o = Small("equal");
  Crew plain(4, LayerRunBytes(o)), balanced(4, LayerRunBytes(o));
  o.balance = false;
  ASSERT_THAT(RunAll(plain, o), Each(0));
  o.balance = true;
  ASSERT_THAT(RunAll(balanced, o), Each(0));
  uint64_t given = 0, received = 0, formula = 0, copied = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const LayerRunResult& a = ResultOf(plain, rank);
    const LayerRunResult& b = ResultOf(balanced, rank);
    EXPECT_EQ(a.nccl_trace, b.nccl_trace);
    EXPECT_EQ(a.dispatched, b.dispatched);
    EXPECT_EQ(a.forward, b.forward);
    EXPECT_EQ(a.backward, b.backward);
    EXPECT_EQ(b.allocations, 0u);
    given += b.given;
    received += b.received;
    formula += b.formula_bytes;
    copied += b.peer_bytes;
  }
  EXPECT_GT(given, 0u);
  EXPECT_EQ(given, received);
  EXPECT_EQ(formula, copied);
}

TEST(LayersTest, DoesNotSendUnchangedWeightsAgain) {
  uint64_t there[2] = {}, forward[2] = {};
  for (const bool tell : {false, true}) {
    LayerRunOptions o = Small(tell ? "told" : "untold");
    o.tell_version = tell;
    Crew crew(4, LayerRunBytes(o));
    ASSERT_THAT(RunAll(crew, o), Each(0));
    uint64_t copied = 0, formula = 0;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      copied += ResultOf(crew, rank).peer_bytes;
      formula += ResultOf(crew, rank).formula_bytes;  // without the weights that are already there
      there[tell] += ResultOf(crew, rank).weights_there;
      forward[tell] += ResultOf(crew, rank).forward;
    }
    EXPECT_EQ(formula, copied);
  }
  EXPECT_EQ(there[false], 0u);
  EXPECT_GT(there[true], 0u);
  EXPECT_EQ(forward[true], forward[false]);
}

TEST(LayersTest, ChoosesDynamicExpertsFromTheMicroBatch) {
  LayerRunOptions o = Small("shifting");
  o.trace.shift = 1;
  Crew crew(4, LayerRunBytes(o));
  ASSERT_THAT(RunAll(crew, o), Each(0));
  uint64_t given = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ResultOf(crew, rank).stale_dynamic, 0u);
    given += ResultOf(crew, rank).given;
  }
  EXPECT_GT(given, 0u);
}

// Planning that takes a virtual second delays the round by about that time, and changes no result.
TEST(LayersTest, PlanningTakesVirtualTimeIfItIsNotHidden) {
  LayerRunOptions o = Small("planned");
  o.micro_batches = 1;
  o.layers = 1;
  Crew quick(4, LayerRunBytes(o)), late(4, LayerRunBytes(o));
  ASSERT_THAT(RunAll(quick, o), Each(0));
  o.plan_ns = 1'000'000'000;
  o.name += "-late";
  ASSERT_THAT(RunAll(late, o), Each(0));
  EXPECT_GE(ResultOf(late, 0).critical_ns, ResultOf(quick, 0).critical_ns + o.plan_ns / 2);
  EXPECT_GE(ResultOf(late, 0).critical_ns, o.plan_ns);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ResultOf(quick, rank).forward, ResultOf(late, rank).forward);
    EXPECT_EQ(ResultOf(quick, rank).backward, ResultOf(late, rank).backward);
  }
}

TEST(LayersTest, MovesNothingIfTokensAreBalanced) {
  LayerRunOptions o = Small("gate");
  o.trace.sigma = 0;
  o.gate_percent = 130;
  Crew crew(4, LayerRunBytes(o));
  ASSERT_THAT(RunAll(crew, o), Each(0));
  for (uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(ResultOf(crew, rank).peer_bytes, 0u);
}

TEST(LayersTest, LayersDoNotWaitForPlan) {
  // With zero patience a member moves nothing, or only what has arrived; the result is the same.
  LayerRunOptions o = Small("hasty");
  Crew plain(4, LayerRunBytes(o)), hasty(4, LayerRunBytes(o));
  o.balance = false;
  ASSERT_THAT(RunAll(plain, o), Each(0));
  o.balance = true;
  o.balancer.patience = microseconds(0);
  ASSERT_THAT(RunAll(hasty, o), Each(0));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ResultOf(plain, rank).forward, ResultOf(hasty, rank).forward);
    EXPECT_EQ(ResultOf(plain, rank).backward, ResultOf(hasty, rank).backward);
  }
}

// Returns whether the caller is the balancer's own thread, which copies to helpers.
bool OnOwnThread() {
  char thread[16] = "";
  ::pthread_getname_np(::pthread_self(), thread, sizeof thread);
  return std::string(thread) == "rewire-moe";
}

// ---- copies that fail ----

// The driver's function. copies_left further copies succeed, either of those to helpers or of all
// others.
decltype(CudaDriver::MemcpyDtoDAsync) real_copy = nullptr;
std::atomic<int> copies_left = 0;
bool failing_to_helpers = false;

CUresult FailsLater(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (OnOwnThread() == failing_to_helpers && copies_left-- <= 0) return CUDA_ERROR_INVALID_VALUE;
  return real_copy(to, from, bytes, stream);
}

void LetCopiesFail(LayerRunOptions* o, int after, bool to_helpers) {
  o->change_driver = [after, to_helpers](CudaDriver* driver) {
    copies_left = after;
    failing_to_helpers = to_helpers;
    real_copy = driver->MemcpyDtoDAsync;
    driver->MemcpyDtoDAsync = FailsLater;
    driver->MemcpyBatchAsync = [](CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                                  size_t*, size_t, CUstream) { return CUDA_ERROR_INVALID_VALUE; };
  };
}

TEST(LayersTest, FailedCopiesToHelpersTurnOnlyBalancingOff) {
  LayerRunOptions o = Small("plain");
  Crew plain(4, LayerRunBytes(o));
  o.balance = false;
  ASSERT_THAT(RunAll(plain, o), Each(0));
  o.balance = true;
  for (const int copies : {0, 1, 2, 3, 7}) {
    o.name = "test-" + std::to_string(::getpid()) + "-path-" + std::to_string(copies);
    LetCopiesFail(&o, copies, true);
    Crew crew(4, LayerRunBytes(o));
    ASSERT_THAT(RunAll(crew, o), Each(0)) << copies;
    uint64_t off = 0;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(ResultOf(plain, rank).forward, ResultOf(crew, rank).forward) << copies;
      EXPECT_EQ(ResultOf(plain, rank).backward, ResultOf(crew, rank).backward) << copies;
      const bool is_off = ResultOf(crew, rank).copies_left == 0;
      EXPECT_EQ(ResultOf(crew, rank).off, is_off ? moe::Off::kCopies : moe::Off::kNo) << copies;
      off += is_off ? 1 : 0;
    }
    EXPECT_GT(off, 0u) << copies;
  }
}

// ---- copies that are late ----

// Virtual delay of a round's copies to helpers, caused by other work of the copy engine. No
// measured copy speed shows this delay, so plans do not avoid it.
constexpr uint64_t kHeldUp = 1'000'000'000;
decltype(CudaDriver::StreamWaitEvent) real_wait = nullptr;
decltype(&cuSimLaunchTimedKernel) timed_kernel = nullptr;

CUresult WaitsHeldUp(CUstream stream, CUevent event, unsigned flags) {
  const CUresult waits = real_wait(stream, event, flags);
  if (waits != CUDA_SUCCESS || !OnOwnThread()) return waits;
  return timed_kernel(
      stream, [](void*) {}, nullptr, kHeldUp);
}

void HoldCopiesUp(CudaDriver* driver) {
  void* const cuda = ::dlopen(REWIRE_SIMGPU "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  timed_kernel = reinterpret_cast<decltype(timed_kernel)>(::dlsym(cuda, "cuSimLaunchTimedKernel"));
  real_wait = driver->StreamWaitEvent;
  driver->StreamWaitEvent = WaitsHeldUp;
}

TEST(LayersTest, LateCopiesHalveTheBudgetDownToZero) {
  LayerRunOptions o = Small("in-time");
  o.micro_batches = 5;
  o.balance = false;
  Crew plain(4, LayerRunBytes(o));
  ASSERT_THAT(RunAll(plain, o), Each(0));
  o.balance = true;
  o.balancer.copies = 32;
  o.change_driver = HoldCopiesUp;
  // 23 rounds are evaluated; as long as rows are moved, every round is late.
  const std::vector<std::pair<uint32_t, uint64_t>> late_rounds_and_left = {
      {24, 32}, {12, 16}, {8, 8}, {2, 0}};
  for (const auto& [late_rounds, left] : late_rounds_and_left) {
    o.name = "test-" + std::to_string(::getpid()) + "-late-" + std::to_string(late_rounds);
    o.balancer.late_rounds = late_rounds;
    Crew crew(4, LayerRunBytes(o));
    ASSERT_THAT(RunAll(crew, o), Each(0)) << late_rounds;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const LayerRunResult& r = ResultOf(crew, rank);
      EXPECT_EQ(ResultOf(plain, rank).forward, r.forward) << late_rounds;
      EXPECT_EQ(ResultOf(plain, rank).backward, r.backward) << late_rounds;
      EXPECT_EQ(r.late_rounds, left > 0 ? 23u : 12u) << late_rounds;
      EXPECT_EQ(r.copies_left, left) << late_rounds;
      EXPECT_EQ(r.off, left == 0 ? moe::Off::kLate : moe::Off::kNo) << late_rounds;
    }
  }
}

TEST(LayersTest, FailedReturnIsReportedToAllRanks) {
  LayerRunOptions o = SmallWithoutDispatch("");
  // There are many micro-batches: on busy processors a round moves little, and may end without an
  // error.
  o.micro_batches = 1000;
  for (const int copies : {3, 8, 12, 17}) {  // three copies are made by Open()
    o.name = "test-" + std::to_string(::getpid()) + "-back-" + std::to_string(copies);
    LetCopiesFail(&o, copies, false);
    Crew crew(4, LayerRunBytes(o));
    EXPECT_THAT(RunAll(crew, o), Each(kBalancingFailed)) << copies;
  }
}

TEST(LayersTest, CopiesOneByOneWithoutBatches) {
  LayerRunOptions o = Small("single");
  o.change_driver = [](CudaDriver* driver) {
    driver->MemcpyBatchAsync = [](CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                                  size_t*, size_t, CUstream) { return CUDA_ERROR_NOT_SUPPORTED; };
  };
  Crew crew(4, LayerRunBytes(o));
  ASSERT_THAT(RunAll(crew, o), Each(0));
  uint64_t formula = 0, copied = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    formula += ResultOf(crew, rank).formula_bytes;
    copied += ResultOf(crew, rank).peer_bytes;
  }
  EXPECT_GT(copied, 0u);
  EXPECT_EQ(formula, copied);
}

TEST(LayersTest, RejectsDriverWithoutStreamMemoryOperations) {
  for (const bool writes : {true, false}) {
    LayerRunOptions o = Small(writes ? "old" : "older");
    o.change_driver = [writes](CudaDriver* driver) {
      auto& entry = writes ? driver->StreamWriteValue64 : driver->StreamWaitValue64;
      entry = [](CUstream, CUdeviceptr, uint64_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; };
    };
    Crew crew(4, LayerRunBytes(o));
    EXPECT_THAT(RunAll(crew, o), Each(kBalancingFailed));
  }
}

TEST(LayersTest, ErrorNamesMissingRank) {
  LayerRunOptions o = SmallWithoutDispatch("missing");
  o.balancer.meeting = milliseconds(300);
  Crew crew(4, LayerRunBytes(o));
  const std::vector<int> statuses = crew.Run(
      [&](uint32_t rank) { return rank == 2 ? 0 : RunLayers(crew, o, rank); }, seconds(60));
  EXPECT_THAT(statuses,
              testing::ElementsAre(kBalancingFailed, kBalancingFailed, 0, kBalancingFailed));
}

TEST(LayersTest, RefusesDifferentShape) {
  LayerRunOptions o = SmallWithoutDispatch("other");
  // A process that arrives after the others have left finds nobody.
  o.balancer.meeting = seconds(3);
  LayerRunOptions other = o;
  other.gate_percent = 110;
  Crew crew(4, LayerRunBytes(o));
  const std::vector<int> statuses = crew.Run(
      [&](uint32_t rank) { return RunLayers(crew, rank == 2 ? other : o, rank); }, seconds(60));
  EXPECT_THAT(statuses, Each(kBalancingFailed));
}

// Kills a process between any two steps of a round. The other processes get an error or had all
// their data; none hangs, and data that passed a check is right.
TEST(LayersTest, KilledHelperIsReportedToTheOthers) {
  LayerRunOptions o = SmallWithoutDispatch("whole");
  o.trace.devices = 3;
  o.trace.experts = 24;
  o.layers = 1;
  o.balance = false;
  Crew plain(3, LayerRunBytes(o));
  ASSERT_THAT(RunAll(plain, o), Each(0));
  o.balance = true;
  int told = 0, checked = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto victim = static_cast<uint32_t>(random() % 3);
    const uint64_t step = random() % (uint64_t{o.micro_batches + 1} * 2 * 5);
    o.name = "test-" + std::to_string(::getpid()) + "-killed-" + std::to_string(seed);
    Crew crew(3, LayerRunBytes(o));
    LayerRunOptions victims = o;
    victims.at_step = [step](uint64_t now) {
      if (now == step) ::raise(SIGKILL);
    };
    const std::vector<int> statuses =
        crew.Run([&](uint32_t rank) { return RunLayers(crew, rank == victim ? victims : o, rank); },
                 seconds(60));
    for (uint32_t rank = 0; rank < 3; ++rank) {
      if (rank == victim) {
        EXPECT_EQ(statuses[rank], 128 + SIGKILL) << "seed " << seed;
        continue;
      }
      EXPECT_TRUE(statuses[rank] == 0 || statuses[rank] == kBalancingFailed)
          << "seed " << seed << ": " << statuses[rank];
      told += statuses[rank] == kBalancingFailed ? 1 : 0;
      for (uint32_t m = 0; m <= o.micro_batches; ++m) {
        const uint64_t check = ChecksOf(crew, o, rank)[m];
        if (check != 0) {
          ++checked;
          EXPECT_EQ(check, ChecksOf(plain, o, rank)[m]) << "seed " << seed;
        }
      }
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(told, 300);
  EXPECT_GT(checked, 300);
}

}  // namespace
}  // namespace rewire::bench
