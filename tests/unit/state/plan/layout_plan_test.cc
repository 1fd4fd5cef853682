#include "reconfig/state/plan/layout_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/unit/state/topo/any_layout.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

// The logical numbers of the elements of a chunk.
std::vector<uint64_t> Numbers(const Chunk& chunk, const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < chunk.elements(); ++i) {
    uint64_t rest = i;
    uint64_t number = 0;
    uint64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
      number += (chunk.begin[d] + rest % chunk.size(d)) * stride;
      rest /= chunk.size(d);
    }
    numbers.push_back(number);
  }
  return numbers;
}

using Set = std::vector<bool>;         // of elements of one tensor
using Held = std::map<MemberId, Set>;  // or by node

uint64_t SizeOf(const SeatedLayout& world, size_t tensor) {
  return Chunk::Whole(world.layout->tensors()[tensor].shape).elements();
}

Held HeldIn(const SeatedLayout& world, size_t tensor) {
  Held held;
  for (uint32_t slot = 0; slot < world.seats.size(); ++slot) {
    Set& own = held[world.seats[slot].member];
    own.resize(SizeOf(world, tensor));
    for (const Piece& piece : world.layout->PiecesOf(tensor, slot)) {
      for (const uint64_t n : Numbers(piece.chunk, world.layout->tensors()[tensor].shape)) {
        own[n] = true;
      }
    }
  }
  return held;
}

// Returns whether the element was new.
bool Add(Held* held, uint32_t key, uint64_t n, uint64_t size) {
  Set& own = (*held)[key];
  own.resize(size);
  const bool added = !own[n];
  own[n] = true;
  return added;
}

bool Has(const Held& held, uint32_t key, uint64_t n) {
  const auto own = held.find(key);
  return own != held.end() && own->second[n];
}

std::vector<Seat> AnySeats(AnyLayout* any, uint32_t slots) {
  std::vector<MemberId> members(slots + any->In(0, 6));
  std::iota(members.begin(), members.end(), 0);
  for (size_t i = members.size(); i > 1; --i) std::swap(members[i - 1], members[any->In(0, i - 1)]);
  std::vector<Seat> seats;
  const auto per_node = static_cast<uint32_t>(any->In(1, 4));
  for (uint32_t slot = 0; slot < slots; ++slot) {
    seats.push_back({members[slot], members[slot] / per_node});
  }
  return seats;
}

// A tensor's moves against the elements that each member has and needs.
void ExpectPlanned(const SeatedLayout& from, const SeatedLayout& to, uint32_t tensor,
                   const std::vector<Move>& moves) {
  const Held has = HeldIn(from, tensor);
  const Held needs = HeldIn(to, tensor);
  std::map<MemberId, uint32_t> node;
  for (const SeatedLayout* world : {&from, &to}) {
    for (const Seat& seat : world->seats) node[seat.member] = seat.node;
  }
  const uint64_t size = SizeOf(from, tensor);
  Held on_node;
  for (const auto& [member, own] : has) {
    for (uint64_t n = 0; n < size; ++n) {
      if (own[n]) Add(&on_node, node[member], n, size);
    }
  }
  Held got;
  for (const Seat& seat : to.seats) got[seat.member].resize(size);
  Held crossed;
  std::vector<std::pair<MemberId, uint64_t>> given_on;
  for (const Move& move : moves) {
    for (const uint64_t n : Numbers(move.chunk, from.layout->tensors()[tensor].shape)) {
      ASSERT_TRUE(Add(&got, move.target, n, size)) << "a second move";
      if (move.relayed) {
        given_on.emplace_back(move.source, n);
        ASSERT_EQ(node[move.source], node[move.target]);
        continue;
      }
      ASSERT_TRUE(Has(has, move.source, n));
      if (Has(has, move.target, n)) {
        ASSERT_EQ(move.source, move.target);
      } else if (node[move.source] != node[move.target]) {
        ASSERT_FALSE(Has(on_node, node[move.target], n)) << "the node had the element";
        ASSERT_TRUE(Add(&crossed, node[move.target], n, size)) << "a second crossing";
      }
    }
  }
  EXPECT_EQ(got, needs);
  for (const auto& [member, n] : given_on) ASSERT_TRUE(Has(got, member, n));
}

TEST(LayoutPlanTest, AnyLayoutGoesToAnyOther) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    AnyLayout any(seed);
    const Parallel before = any.NewParallel();
    Parallel after = any.NewParallel();
    after.layers = before.layers;
    after.split.assign(after.pipeline * after.virtual_stages, 0);
    for (uint32_t layer = 0; layer < after.layers; ++layer) {
      ++after.split[any.In(0, after.split.size() - 1)];
    }
    std::vector<LogicalTensor> old_tensors;
    std::vector<LogicalTensor> new_tensors;
    for (uint64_t n = any.In(1, 3); n > 0; --n) {
      LogicalTensor tensor = any.NewTensor(before);
      if (tensor.experts >= 0) {
        tensor.shape[static_cast<size_t>(tensor.experts)] = before.expert * after.expert;
      }
      old_tensors.push_back(tensor);
      if (tensor.split.dim >= 0 && tensor.experts < 0) {
        tensor.split.dim = static_cast<int32_t>(any.In(0, tensor.shape.size() - 1));
        tensor.split.sections.clear();
      }
      if (tensor.experts >= 0 && !CheckExperts(after).ok())
        tensor.experts = -1, tensor.buffer = "dense";
      if (tensor.split.dim >= 0) tensor.split.unit = any.In(1, 2);
      new_tensors.push_back(tensor);
    }
    const auto old_layout = ParallelLayout::Make(before, any.NewZero(), old_tensors);
    const auto new_layout = ParallelLayout::Make(after, any.NewZero(), new_tensors);
    ASSERT_TRUE(old_layout.ok()) << old_layout.status();
    ASSERT_TRUE(new_layout.ok()) << new_layout.status();
    SeatedLayout from{&*old_layout, AnySeats(&any, before.slots())};
    SeatedLayout to{&*new_layout, AnySeats(&any, after.slots())};
    // A member has the same node in both worlds.
    std::map<MemberId, uint32_t> node;
    for (const Seat& seat : from.seats) node[seat.member] = seat.node;
    for (Seat& seat : to.seats) seat.node = node.emplace(seat.member, seat.node).first->second;
    ASSERT_TRUE(CheckSameTensors(from, to).ok());
    std::map<uint32_t, std::vector<Move>> moves;
    PlanMoves(from, to, [&](const Move& move) { moves[move.tensor].push_back(move); });
    for (uint32_t tensor = 0; tensor < old_tensors.size(); ++tensor) {
      ExpectPlanned(from, to, tensor, moves[tensor]);
      if (HasFailure()) FAIL() << "seed " << seed << " tensor " << tensor;
    }
  }
}

// Padding changes the intervals of ZeRO. Equal tensors share one geometry.
TEST(LayoutPlanTest, PaddedAndOtherTensorsArePlannedApart) {
  LogicalTensor plain;
  plain.shape = {10, 4};
  plain.role = Role::kOptimizer;
  plain.split.dim = 0;
  LogicalTensor padded = plain;
  padded.split.padded = true;
  Parallel wide;
  wide.tensor = 4;
  wide.data = 2;
  const ParallelLayout one = *ParallelLayout::Make({}, {}, {plain, padded});
  const ParallelLayout eight = *ParallelLayout::Make(wide, {.stage = 1}, {plain, padded});
  SeatedLayout from{&one, {{0, 0}}};
  SeatedLayout to{&eight, {}};
  for (uint32_t slot = 0; slot < 8; ++slot) to.seats.push_back({slot, 0});
  std::map<uint32_t, std::vector<Move>> moves;
  PlanMoves(from, to, [&](const Move& move) { moves[move.tensor].push_back(move); });
  for (const uint32_t tensor : {0, 1}) ExpectPlanned(from, to, tensor, moves[tensor]);
}

TEST(LayoutPlanTest, ReplicasOfAThousandSlotsArePlannedTogether) {
  LogicalTensor norm;
  norm.shape = {16384};
  norm.role = Role::kOptimizer;
  Parallel before;
  before.tensor = 8;
  before.data = 128;
  Parallel after = before;
  after.data = 125;
  const ParallelLayout old_layout = *ParallelLayout::Make(before, {.stage = 1}, {norm});
  const ParallelLayout new_layout = *ParallelLayout::Make(after, {.stage = 1}, {norm});
  EXPECT_EQ(old_layout.Classes(0), 128u);
  SeatedLayout from{&old_layout, {}};
  SeatedLayout to{&new_layout, {}};
  for (uint32_t slot = 0; slot < before.slots(); ++slot) from.seats.push_back({slot, slot / 8});
  for (uint32_t slot = 0; slot < after.slots(); ++slot) to.seats.push_back({slot, slot / 8});
  uint64_t elements = 0;
  PlanMoves(from, to, [&](const Move& move) { elements += move.chunk.elements(); });
  EXPECT_EQ(elements, 8u * 16384u);
}

TEST(LayoutPlanTest, ErrorsNameTheDifference) {
  LogicalTensor tensor;
  tensor.name = "w";
  tensor.shape = {4};
  LogicalTensor longer = tensor;
  longer.shape = {5};
  LogicalTensor other = tensor;
  other.name = "v";
  const auto layout = [](std::vector<LogicalTensor> tensors) {
    return *ParallelLayout::Make({}, {}, std::move(tensors));
  };
  const ParallelLayout one = layout({tensor});
  const auto expect = [&](const ParallelLayout& to, std::vector<Seat> seats, const char* text) {
    const absl::Status status = CheckSameTensors({&one, {{0, 0}}}, {&to, std::move(seats)});
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  expect(one, {}, "plan: to: 0 members: must be the 1 slots");
  expect(layout({}), {{0, 0}}, "plan: to: 0 tensors: must be the 1 of from");
  expect(layout({other}), {{0, 0}}, "plan: to: tensor number 0 is v: must be w");
  expect(layout({longer}), {{0, 0}}, "plan: tensor w: its shape or element_bytes differs");
  Parallel two;
  two.data = 2;
  const ParallelLayout twice = *ParallelLayout::Make(two, {}, {tensor});
  expect(twice, {{3, 0}, {3, 0}}, "plan: to: member 3 has two slots: must have one");
  expect(one, {{0, 1}}, "plan: to: member 0 is on node 1: must be on node 0, as in from");
}

}  // namespace
}  // namespace rewire::state
