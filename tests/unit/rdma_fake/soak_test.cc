// Many seeds of a mixed load: several queue pairs, losses, links that flap, late receives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/sim/seeded_random.h"
#include "tests/unit/rdma_fake/pair.h"

namespace rewire::rdma::fake {
namespace {

constexpr size_t kSlots = 8;
constexpr uint32_t kSlotBytes = End::kBytes / kSlots;
constexpr uint64_t kMessages = 40;

// One direction of one connection, with at most kSlots outstanding messages.
struct Lane {
  End from;
  End to;
  uint64_t sent = 0;
  uint64_t completed = 0;
  uint64_t received = 0;
  uint64_t receives = 0;  // posted
  std::array<uint32_t, kSlots> bytes{};
  std::array<Segment, kSlots> segments{};

  void Send(sim::SeededRandom* random) {
    if (sent == kMessages || sent == std::min(completed, received) + kSlots) return;
    const size_t slot = sent % kSlots;
    bytes[slot] = static_cast<uint32_t>(random->Below(kSlotBytes + 1));
    from.Fill(slot * kSlotBytes, bytes[slot], static_cast<uint32_t>(sent));
    segments[slot] = from.segment(slot * kSlotBytes, bytes[slot]);
    SendWork work = End::WriteTo(to, slot * kSlotBytes, segments[slot], sent);
    work.operation = Operation::kWriteWithImmediate;
    work.immediate = static_cast<uint32_t>(sent++);
    from.Post(work);
  }
  void Allow() {
    if (receives < kMessages && receives < received + kSlots) to.PostEmptyReceive(receives++);
  }
  void Poll() {
    std::array<Completion, 4> batch;
    const auto done = from.completions->Poll(batch);
    ASSERT_TRUE(done.ok());
    for (const Completion& completion : std::span(batch).first(*done)) {
      ASSERT_EQ(completion.status, CompletionStatus::kSuccess) << Name(completion.status);
      ASSERT_EQ(completion.id, completed++);
    }
    const auto come = to.completions->Poll(batch);
    ASSERT_TRUE(come.ok());
    for (const Completion& completion : std::span(batch).first(*come)) {
      ASSERT_EQ(completion.status, CompletionStatus::kSuccess) << Name(completion.status);
      ASSERT_EQ(completion.immediate, received);
      const size_t slot = received % kSlots;
      ASSERT_TRUE(to.Holds(slot * kSlotBytes, bytes[slot], static_cast<uint32_t>(received)));
      ++received;
    }
  }
};

void Soak(uint64_t seed) {
  sim::SeededRandom random(seed);
  Fabric fabric({.seed = seed});
  for (const char* device : {"left", "right"}) {
    fabric.AddDevice({device});
    fabric.SetLoss(device, 2000);
  }
  const auto driver = fabric.MakeDriver({"left", "right"});
  std::array<Lane, 3> lanes;
  for (size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = lanes[i];
    lane.from.Open(driver.get(), i % 2 == 0 ? "left" : "right");
    lane.to.Open(driver.get(), i % 2 == 0 ? "right" : "left");
    lane.from.Make();
    lane.to.Make();
    Connect(&lane.from, &lane.to, static_cast<uint32_t>(random.Below(1 << 24)), {0, 10, 7, 7, 1});
  }
  const auto finished = [&] {
    return std::all_of(lanes.begin(), lanes.end(), [](const Lane& lane) {
      return lane.completed == kMessages && lane.received == kMessages;
    });
  };
  for (int step = 0; step < 200'000 && !finished(); ++step) {
    Lane& lane = lanes[random.Below(lanes.size())];
    if (random.OneIn(3)) lane.Send(&random);
    if (random.OneIn(8)) lane.Allow();
    ASSERT_NO_FATAL_FAILURE(lane.Poll());
    if (random.OneIn(5000)) {
      const char* device = random.OneIn(2) ? "left" : "right";
      fabric.SetLinkUp(device, false);
      fabric.Advance(microseconds(random.Below(2000)));
      fabric.SetLinkUp(device, true);
    }
  }
  EXPECT_TRUE(finished());
}

TEST(Soak, EveryMessageOnceInOrderAndWhole) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(Soak(seed));
  }
}

}  // namespace
}  // namespace rewire::rdma::fake
