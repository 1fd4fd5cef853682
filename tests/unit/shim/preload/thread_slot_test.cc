// Threads inside generations that are swapped, freed and aborted concurrently. ASan detects a use
// after free, TSan a missing order.
#include "shim/preload/thread_slot.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "reconfig/base/clock.h"
#include "tests/unit/shim/preload/shim_fixture.h"

namespace rewire::shim {
namespace {

// Waits for a condition; false after ten seconds.
template <typename Condition>
bool Eventually(Condition&& condition) {
  const Time deadline = Now() + seconds(10);
  while (!condition()) {
    if (Now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class ThreadSlotTest : public ShimTest, public ::testing::WithParamInterface<bool> {
 protected:
  ThreadSlotTest() { UseFullBarriers(GetParam()); }
  ~ThreadSlotTest() override { UseFullBarriers(false); }
};

// Each thread issues on its own communicator (NCCL's rule: one issuer at a time). One thread swaps
// all of them, and another watches them as a watchdog does.
TEST_P(ThreadSlotTest, GenerationsAreSwappedUnderLoad) {
  constexpr int kThreads = 3;
  constexpr int kSwaps = 80;
  ncclComm_t comms[kThreads];
  for (ncclComm_t& c : comms) c = Make();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> issued[kThreads] = {};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (!stop.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 20; ++i) {
          if (AllReduce(comms[t]) != ncclSuccess) ++failures;
        }
        ncclGroupStart();
        for (int i = 0; i < 3; ++i) {
          if (AllReduce(comms[t]) != ncclSuccess) ++failures;
        }
        ncclGroupEnd();
        issued[t] += 23;
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (const ncclComm_t c : comms) {
        ncclResult_t error = ncclSuccess;
        int count = 0;
        if (ncclCommGetAsyncError(c, &error) != ncclSuccess || error != ncclSuccess ||
            ncclCommCount(c, &count) != ncclSuccess || count != 2) {
          ++failures;
        }
      }
    }
  });
  EXPECT_TRUE(Eventually([&] { return issued[0] > 0 && issued[1] > 0 && issued[2] > 0; }));
  uint64_t on_old = 0;
  for (int i = 0; i < kSwaps; ++i) {
    for (const ncclComm_t c : comms) {
      Generation* old = Swap(c, static_cast<uint64_t>(i) + 1);
      // Alternately waits for the generation, and leaves it to be freed by the last thread that
      // exits.
      auto* real = reinterpret_cast<NoopComm*>(old->Real());
      if (i % 2 == 0) {
        EXPECT_TRUE(Services()->quiesce(old, 10000));
        const uint64_t operations = real->operations;
        Services()->free_generation(old);
        std::this_thread::yield();
        EXPECT_EQ(operations, real->operations) << "an operation on a quiesced generation";
        on_old += operations;
      } else {
        Services()->free_generation(old);
      }
    }
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(0, failures);
  EXPECT_GT(on_old, 0u);
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(issued[t], V(comms[t])->issued);
    EXPECT_EQ(ncclSuccess, ncclCommDestroy(comms[t]));
  }
  Sweep();
  EXPECT_EQ(0, Waiting());
}

// "I have not issued operation N and will not": stored, ordered, then read.
TEST_P(ThreadSlotTest, NoOperationIsIssuedAfterAPledge) {
  UseCore();
  static std::atomic<uint64_t> at;
  const ncclComm_t comm = Make();
  // Waits at the cut until the cut has changed or is gone.
  at_cut = [](VirtualCommunicator* c, CallSite) {
    at = c->issued.load();
    return Eventually([c] { return c->stop_at.load() > c->issued.load(); }) ? ncclSuccess
                                                                            : ncclInternalError;
  };
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::thread issuer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      if (AllReduce(comm) != ncclSuccess) ++failures;
    }
  });
  int held = 0;
  // The distance adapts so that about every second pledge is in time, at any speed of the issuer.
  uint64_t ahead = 1;
  for (int i = 0; i < 2000 && held < 60; ++i) {
    const uint64_t cut = V(comm)->issued.load() + ahead;
    at = kNoCut;
    const uint64_t issued = Services()->pledge(V(comm), cut);
    if (issued >= cut) {
      // The pledge is too late and is withdrawn. The issuer may be waiting for it.
      ahead = std::min<uint64_t>(ahead * 2, 1 << 20);
      V(comm)->stop_at.store(kNoCut);
      EXPECT_TRUE(Eventually([&] { return V(comm)->issued.load() > issued; }));
      continue;
    }
    ++held;
    ahead = std::max<uint64_t>(ahead * 2 / 3, 1);
    EXPECT_TRUE(Eventually([cut] { return at.load() == cut; }));
    EXPECT_EQ(cut, V(comm)->issued);
    EXPECT_EQ(cut, RealOf(comm)->operations);
    V(comm)->stop_at.store(kNoCut);
  }
  stop = true;
  issuer.join();
  EXPECT_EQ(60, held);
  EXPECT_EQ(0, failures);
  ncclCommDestroy(comm);
}

// A watchdog aborts while another thread is inside the real library, in a group of its own or not.
// NCCL frees at the end of the group.
TEST_P(ThreadSlotTest, AbortDuringAnOperationFreesAfterIt) {
  static std::atomic<bool> inside;
  static std::atomic<bool> aborted;
  static std::atomic<bool> done;
  for (int round = 0; round < 50; ++round) {
    inside = aborted = done = false;
    const ncclComm_t comm = Make();
    NoopNccl()->on_call = [](const char* name) {
      if (std::string(name) == "CommAbort") aborted = true;
      if (std::string(name) == "GroupEnd") {
        EXPECT_TRUE(done);
      }
      if (std::string(name) != "AllReduce") return;
      inside = true;
      EXPECT_TRUE(Eventually([] { return aborted.load(); }));
      usleep(1000);
      done = true;
    };
    std::thread issuer([&] { EXPECT_EQ(ncclSuccess, AllReduce(comm)); });
    EXPECT_TRUE(Eventually([] { return inside.load(); }));
    const bool grouped = round % 2 != 0;
    if (grouped) {
      EXPECT_EQ(ncclSuccess, ncclGroupStart());
    }
    EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
    if (grouped) {
      EXPECT_EQ(ncclInvalidUsage, AllReduce(comm));
      EXPECT_EQ(ncclSuccess, ncclGroupEnd());
    }
    EXPECT_EQ(Magic::kDestroyed, V(comm)->magic);
    issuer.join();
    NoopNccl()->on_call = nullptr;
    EXPECT_EQ(ncclInvalidArgument, AllReduce(comm));
    Sweep();
    EXPECT_EQ(0, Waiting());
  }
}

// Memory of a communicator that a thread still uses is not reused for another communicator.
TEST_P(ThreadSlotTest, CommunicatorInUseIsNotReused) {
  static std::atomic<bool> inside;
  static std::atomic<bool> leave;
  inside = false;
  leave = false;
  const ncclComm_t comm = Make();
  NoopNccl()->on_call = [](const char* name) {
    if (std::string(name) != "AllReduce") return;
    inside = true;
    EXPECT_TRUE(Eventually([] { return leave.load(); }));
  };
  std::thread issuer([&] { AllReduce(comm); });
  ASSERT_TRUE(Eventually([] { return inside.load(); }));
  ncclCommDestroy(comm);
  EXPECT_EQ(1, Waiting());
  for (int i = 0; i < 300; ++i) {
    const ncclComm_t other = Make();
    EXPECT_NE(comm, other);
    ncclCommAbort(other);
  }
  EXPECT_EQ(1, Waiting());
  leave = true;
  issuer.join();
  NoopNccl()->on_call = nullptr;
  Sweep();
  EXPECT_EQ(0, Waiting());
}

// NCCL frees the ranks of one process when the last of them ends, so an earlier abort waits for no
// thread, and the memory of its communicator is not reused.
TEST_P(ThreadSlotTest, AnAbortedRankInUseIsNotReused) {
  static std::atomic<bool> inside;
  static std::atomic<bool> leave;
  inside = leave = false;
  ncclComm_t comms[2];
  ASSERT_EQ(ncclSuccess, ncclCommInitAll(comms, 2, nullptr));
  NoopNccl()->on_call = [](const char* name) {
    if (std::string(name) != "AllReduce") return;
    inside = true;
    EXPECT_TRUE(Eventually([] { return leave.load(); }));
  };
  std::thread issuer([&] { AllReduce(comms[0]); });
  ASSERT_TRUE(Eventually([] { return inside.load(); }));
  EXPECT_EQ(ncclSuccess, ncclCommAbort(comms[0]));
  EXPECT_EQ(1, Waiting());
  for (int i = 0; i < 300; ++i) {
    const ncclComm_t other = Make();
    EXPECT_NE(comms[0], other);
    ncclCommAbort(other);
  }
  leave = true;
  issuer.join();
  NoopNccl()->on_call = nullptr;
  EXPECT_EQ(ncclSuccess, ncclCommAbort(comms[1]));
  Sweep();
  EXPECT_EQ(0, Waiting());
}

TEST_P(ThreadSlotTest, ACancelledThreadCompletesItsAbort) {
  static std::atomic<bool> inside;
  static std::atomic<bool> aborting;
  static std::atomic<bool> leave;
  inside = aborting = leave = false;
  const ncclComm_t comm = Make();
  NoopNccl()->on_call = [](const char* name) {
    if (std::string(name) == "CommAbort") aborting = true;
    if (std::string(name) != "AllReduce") return;
    inside = true;
    EXPECT_TRUE(Eventually([] { return leave.load(); }));
  };
  std::thread issuer([&] { AllReduce(comm); });
  ASSERT_TRUE(Eventually([] { return inside.load(); }));
  std::thread watchdog([&] { ncclCommAbort(comm); });
  ASSERT_TRUE(Eventually([] { return aborting.load(); }));
  pthread_cancel(watchdog.native_handle());
  usleep(2000);
  EXPECT_EQ(Magic::kOpen, V(comm)->magic);
  leave = true;
  issuer.join();
  watchdog.join();
  NoopNccl()->on_call = nullptr;
  EXPECT_EQ(Magic::kDestroyed, V(comm)->magic);
}

// NCCL fails a creation whose communicator another thread aborts meanwhile.
TEST_P(ThreadSlotTest, ACreationThatFailsDuringAnAbortIsDroppedOnce) {
  static std::atomic<bool> inside;
  static std::atomic<bool> aborted;
  inside = aborted = false;
  NoopNccl()->on_call = [](const char* name) {
    if (std::string(name) != "CommInitRankConfig") return;
    inside = true;
    EXPECT_TRUE(Eventually([] { return aborted.load(); }));
  };
  ncclComm_t comm = nullptr;
  std::thread creator([&] {
    NoopNccl()->result = ncclInternalError;
    EXPECT_EQ(ncclInternalError, ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0));
    NoopNccl()->result = ncclSuccess;
  });
  ASSERT_TRUE(Eventually([] { return inside.load(); }));
  ncclCommAbort(__atomic_load_n(&comm, __ATOMIC_ACQUIRE));
  aborted = true;
  creator.join();
  NoopNccl()->on_call = nullptr;
  // The pool keeps those that were dropped last.
  std::set<ncclComm_t> made;
  for (const size_t count : {100u, 1000u}) {
    for (size_t i = 0; i < count; ++i) made.insert(Make());
    EXPECT_EQ(count, made.size());
    for (const ncclComm_t each : made) ncclCommAbort(each);
    made.clear();
  }
}

// NCCL defers these calls to the end of the group.
TEST_P(ThreadSlotTest, ADeferredCallCountsUntilTheEndOfItsGroup) {
  ncclComm_t comm = Make();
  const Generation* generation = V(comm)->current.load();
  ncclComm_t none = nullptr;
  ncclWindow_t window = nullptr;  // stored at the end of the group
  const std::function<void()> calls[] = {
      [&] { EXPECT_EQ(ncclSuccess, ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, nullptr)); },
      [&] { EXPECT_EQ(ncclSuccess, ncclCommWindowRegister(comm, &window, 8, &window, 0)); },
      [&] { EXPECT_EQ(ncclSuccess, ncclCommFinalize(comm)); }};
  for (const auto& call : calls) {
    ncclGroupStart();
    call();
    EXPECT_EQ(1u, generation->fixed);
    ncclGroupEnd();
    EXPECT_EQ(0u, generation->fixed);
  }
  ncclCommAbort(comm);
}

TEST_P(ThreadSlotTest, ThreadThatEndsInsideAGroupHoldsNoGeneration) {
  const ncclComm_t comm = Make();
  std::thread([&] {
    ncclGroupStart();
    AllReduce(comm);
  }).join();
  Generation* old = Swap(comm, 1);
  EXPECT_TRUE(Services()->quiesce(old, 1000));
  Retire(old);
  EXPECT_EQ(0u, V(comm)->issued);
  ncclCommDestroy(comm);
}

TEST_P(ThreadSlotTest, QuiesceReturnsFalseAtItsDeadline) {
  const ncclComm_t comm = Make();
  ncclGroupStart();
  AllReduce(comm);
  Generation* old = Swap(comm, 1);
  const Time before = Now();
  EXPECT_FALSE(Services()->quiesce(old, 20));
  EXPECT_GE(Now() - before, milliseconds(20));
  ncclGroupEnd();
  Retire(old);
  ncclCommDestroy(comm);
}

INSTANTIATE_TEST_SUITE_P(Readers, ThreadSlotTest, ::testing::Values(false, true),
                         [](const auto& info) {
                           return info.param ? "FullBarriers" : "Membarrier";
                         });

}  // namespace
}  // namespace rewire::shim
