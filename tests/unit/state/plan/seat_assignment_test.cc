#include "reconfig/state/plan/seat_assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "reconfig/state/plan/kept_bytes.h"
#include "tests/unit/state/topo/any_layout.h"

namespace rewire::state {
namespace {

// Returns the bytes that both chunks' elements share, from the pieces alone.
uint64_t SharedBytes(const ParallelLayout& from, uint32_t old, const ParallelLayout& to,
                     uint32_t next) {
  uint64_t bytes = 0;
  for (size_t tensor = 0; tensor < from.tensors().size(); ++tensor) {
    for (const Piece& a : from.PiecesOf(tensor, old)) {
      for (const Piece& b : to.PiecesOf(tensor, next)) {
        bytes += Intersection(a.chunk, b.chunk).elements() * from.tensors()[tensor].element_bytes;
      }
    }
  }
  return bytes;
}

struct AnyPair {
  explicit AnyPair(uint64_t seed) {
    AnyLayout any(seed);
    const auto [before, after] = any.NewPair();
    from = before;
    to = after;
    members.resize(to->slots());
    std::vector<MemberId> numbers(std::max(from->slots(), to->slots()) + any.In(0, 3));
    std::iota(numbers.begin(), numbers.end(), 0);
    for (size_t i = 0; i < numbers.size(); ++i) {
      std::swap(numbers[i], numbers[any.In(i, numbers.size() - 1)]);
    }
    for (uint32_t slot = 0; slot < from->slots(); ++slot) old_seats.push_back({numbers[slot], 0});
    const uint64_t skipped = any.In(0, numbers.size() - to->slots());
    for (uint32_t i = 0; i < to->slots(); ++i) members[i] = {numbers[skipped + i], 0};
  }
  [[nodiscard]] SeatedLayout seated() const { return {&*from, old_seats}; }
  std::optional<ParallelLayout> from, to;
  std::vector<Seat> old_seats, members;
};

uint64_t KeptBy(const AnyPair& pair, const std::vector<Seat>& seats) {
  uint64_t bytes = 0;
  for (uint32_t next = 0; next < seats.size(); ++next) {
    for (uint32_t old = 0; old < pair.old_seats.size(); ++old) {
      if (pair.old_seats[old].member != seats[next].member) continue;
      bytes += SharedBytes(*pair.from, old, *pair.to, next);
    }
  }
  return bytes;
}

TEST(KeptBytesTest, IsWhatThePiecesShare) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const AnyPair pair(seed);
    const KeptBytes kept(*pair.from, *pair.to);
    for (uint32_t old = 0; old < pair.from->slots(); ++old) {
      for (uint32_t next = 0; next < pair.to->slots(); ++next) {
        ASSERT_EQ(kept.Of(old, next), SharedBytes(*pair.from, old, *pair.to, next))
            << "seed " << seed << " slots " << old << ", " << next;
      }
    }
  }
}

TEST(SeatAssignmentTest, NoAssignmentOfFewMembersKeepsMore) {
  int tried = 0;
  for (uint64_t seed = 1; tried < 200; ++seed) {
    const AnyPair pair(seed);
    if (pair.to->slots() > 6) continue;
    ++tried;
    std::vector<Seat> seats = pair.members;
    const auto by_member = [](const Seat& a, const Seat& b) { return a.member < b.member; };
    std::sort(seats.begin(), seats.end(), by_member);
    uint64_t most = 0;
    do {
      most = std::max(most, KeptBy(pair, seats));
    } while (std::next_permutation(seats.begin(), seats.end(), by_member));
    const SeatAssignment result = AssignSeats(pair.seated(), *pair.to, pair.members);
    ASSERT_EQ(result.kept_bytes, most) << "seed " << seed;
    ASSERT_EQ(result.bound_bytes, most) << "seed " << seed;
    ASSERT_EQ(KeptBy(pair, result.seats), most) << "seed " << seed;
  }
}

TEST(SeatAssignmentTest, EachMemberHasOneSlotAndTheBoundIsNear) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const AnyPair pair(seed);
    const SeatAssignment result = AssignSeats(pair.seated(), *pair.to, pair.members);
    std::multiset<MemberId> wanted, given;
    for (const Seat& seat : pair.members) wanted.insert(seat.member);
    for (const Seat& seat : result.seats) given.insert(seat.member);
    ASSERT_EQ(given, wanted);
    ASSERT_GE(result.kept_bytes, result.bound_bytes - result.bound_bytes / 1000);
    ASSERT_EQ(KeptBy(pair, result.seats), result.kept_bytes) << "seed " << seed;
  }
}

// 512 members of which 12 leave: the shards of ZeRO differ for each, and the rest has few kinds.
TEST(SeatAssignmentTest, ManyMembersKeepWhatTheyHave) {
  std::vector<LogicalTensor> tensors(4);
  for (uint32_t layer = 0; layer < 4; ++layer) {
    LogicalTensor& t = tensors[layer];
    t.shape = {64, 1024};
    t.element_bytes = 4;
    t.split.dim = 0;
    t.role = layer % 2 == 0 ? Role::kParameter : Role::kOptimizer;
    t.stages = Stages::kLayer;
    t.layer = layer;
  }
  Parallel before;
  before.tensor = 2;
  before.pipeline = 2;
  before.layers = 4;
  before.data = 128;
  Parallel after = before;
  after.data = 125;
  const ParallelLayout from = *ParallelLayout::Make(before, {.stage = 1}, tensors);
  const ParallelLayout to = *ParallelLayout::Make(after, {.stage = 1}, tensors);
  SeatedLayout seated{&from, {}};
  for (uint32_t slot = 0; slot < 512; ++slot) seated.seats.push_back({slot, slot / 8});
  std::vector<Seat> members(seated.seats.begin() + 6, seated.seats.end() - 6);
  const SeatAssignment result = AssignSeats(seated, to, members);
  EXPECT_GE(result.kept_bytes, result.bound_bytes - result.bound_bytes / 1000);
  // Each keeps its part of the parameters, and nearly all keep some of their shard.
  const uint64_t parameters = uint64_t{500} * 64 / 2 * 1024 * 4;
  EXPECT_GE(result.kept_bytes, parameters);
}

TEST(SeatAssignmentTest, WithoutAChangeEverybodyStays) {
  LogicalTensor t;
  t.shape = {64};
  for (const uint32_t stage : {0u, 1u}) {
    t.role = Role::kOptimizer;
    Parallel parallel;
    parallel.data = 16;
    const ParallelLayout layout = *ParallelLayout::Make(parallel, {.stage = stage}, {t});
    SeatedLayout seated{&layout, {}};
    for (uint32_t slot = 0; slot < 16; ++slot) seated.seats.push_back({slot, 0});
    const SeatAssignment result = AssignSeats(seated, layout, seated.seats);
    for (uint32_t slot = 0; slot < 16; ++slot) EXPECT_EQ(result.seats[slot].member, slot);
  }
}

}  // namespace
}  // namespace rewire::state
