#include "reconfig/state/topo/parallel_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/unit/state/topo/any_layout.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

// The logical numbers of the elements that a slot has, in the order of the slot's memory.
std::vector<uint64_t> Elements(const ParallelLayout& layout, size_t tensor, uint32_t slot) {
  const std::vector<uint64_t>& shape = layout.tensors()[tensor].shape;
  std::map<uint64_t, uint64_t> by_offset;
  for (const Piece& piece : layout.PiecesOf(tensor, slot)) {
    const uint64_t count = piece.chunk.elements();
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t rest = i;
      uint64_t offset = piece.offset;
      uint64_t number = 0;
      uint64_t stride = 1;
      for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
        const uint64_t x = rest % piece.chunk.size(d);
        rest /= piece.chunk.size(d);
        offset += x * piece.strides[d];
        number += (piece.chunk.begin[d] + x) * stride;
      }
      EXPECT_TRUE(by_offset.emplace(offset, number).second) << "two elements at " << offset;
    }
  }
  std::vector<uint64_t> elements;
  for (const auto& [offset, number] : by_offset) elements.push_back(number);
  return elements;
}

ParallelLayout Make(const Parallel& parallel, const Zero& zero, const LogicalTensor& tensor) {
  auto layout = ParallelLayout::Make(parallel, zero, {tensor});
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

using Numbers = std::vector<uint64_t>;

TEST(ParallelLayoutTest, SectionsAreDividedOneByOne) {
  Parallel parallel;
  parallel.tensor = 2;
  LogicalTensor qkv;
  qkv.shape = {8, 1};
  qkv.split = {.dim = 0, .sections = {4, 2, 2}};
  const ParallelLayout layout = Make(parallel, {}, qkv);
  EXPECT_EQ(Elements(layout, 0, 0), (Numbers{0, 1, 4, 6}));
  EXPECT_EQ(Elements(layout, 0, 1), (Numbers{2, 3, 5, 7}));
}

TEST(ParallelLayoutTest, PaddingIsInTheMemoryAndNoState) {
  Parallel parallel;
  parallel.tensor = 2;
  LogicalTensor vocabulary;
  vocabulary.shape = {1, 5};
  vocabulary.split = {.dim = 1, .sections = {}, .unit = 4, .padded = true};
  const ParallelLayout layout = Make(parallel, {}, vocabulary);
  EXPECT_EQ(Elements(layout, 0, 0), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(Elements(layout, 0, 1), (Numbers{4}));
  EXPECT_EQ(layout.PiecesOf(0, 1)[0].strides[0], 4u);
}

TEST(ParallelLayoutTest, ABufferIsDividedWithoutRegardToItsTensors) {
  Parallel parallel;
  parallel.data = 2;
  LogicalTensor a;
  a.name = "a";
  a.role = Role::kOptimizer;
  a.shape = {5};
  LogicalTensor b = a;
  b.name = "b";
  b.shape = {2, 2};
  auto layout =
      ParallelLayout::Make(parallel, {.stage = 1, .way = ZeroWay::kBuffer, .align = 2}, {a, b});
  ASSERT_TRUE(layout.ok());
  // a is at [0, 5), b at [6, 10), and the first interval is [0, 6).
  EXPECT_EQ(Elements(*layout, 0, 0), (Numbers{0, 1, 2, 3, 4}));
  EXPECT_TRUE(layout->PiecesOf(0, 1).empty());
  EXPECT_TRUE(layout->PiecesOf(1, 0).empty());
  EXPECT_EQ(Elements(*layout, 1, 1), (Numbers{0, 1, 2, 3}));
}

TEST(ParallelLayoutTest, BlocksGoRound) {
  Parallel parallel;
  parallel.data = 2;
  LogicalTensor tensor;
  tensor.role = Role::kOptimizer;
  tensor.shape = {7};
  const ParallelLayout layout =
      Make(parallel, {.stage = 1, .way = ZeroWay::kBlocks, .block = 2}, tensor);
  EXPECT_EQ(Elements(layout, 0, 0), (Numbers{0, 1, 4, 5}));
  EXPECT_EQ(Elements(layout, 0, 1), (Numbers{2, 3, 6}));
}

TEST(ParallelLayoutTest, TiedTensorsAreOnTheFirstAndTheLastStage) {
  Parallel parallel;
  parallel.pipeline = 3;
  LogicalTensor tied;
  tied.shape = {2};
  tied.stages = Stages::kFirstAndLast;
  const ParallelLayout layout = Make(parallel, {}, tied);
  EXPECT_EQ(Elements(layout, 0, 0), (Numbers{0, 1}));
  EXPECT_FALSE(layout.ClassOf(0, 1).has_value());
  EXPECT_EQ(layout.ClassOf(0, 2), layout.ClassOf(0, 0));
}

TEST(ParallelLayoutTest, ErrorsNameTheTensorAndTheField) {
  const auto expect = [](const std::function<void(LogicalTensor*)>& change, const char* text) {
    Parallel parallel;
    parallel.data = 4;
    parallel.expert = 2;
    LogicalTensor tensor;
    tensor.name = "w";
    tensor.shape = {6, 4};
    change(&tensor);
    const auto made = ParallelLayout::Make(parallel, {}, {tensor});
    EXPECT_THAT(made.status().message(), HasSubstr(std::string("layout: tensor w: ") + text));
  };
  expect([](LogicalTensor* t) { t->shape.clear(); }, "shape has 0 dimensions");
  expect([](LogicalTensor* t) { t->shape = {3, 0}; }, "shape has a size of 0");
  expect([](LogicalTensor* t) { t->shape = {1u << 31, 1u << 31}; }, "shape has a size of");
  expect([](LogicalTensor* t) { t->element_bytes = 1048577; },
         "element_bytes=1048577: must be in [1, 1048576]");
  expect([](LogicalTensor* t) { t->split.dim = 2; }, "split.dim=2: must be -1 or");
  expect(
      [](LogicalTensor* t) {
        t->split = {.dim = 0, .sections = {4, 4}};
      },
      "split.sections: their sum must be the dimension's size 6");
  expect([](LogicalTensor* t) { t->split = {.dim = 0, .sections = {}, .unit = 0}; },
         "split.unit=0: must be in");
  expect([](LogicalTensor* t) { t->split.padded = true; }, "split.dim is missing");
  expect(
      [](LogicalTensor* t) {
        t->split = {.dim = 0, .sections = {uint64_t{1} << 63, uint64_t{1} << 63, 6}};
      },
      "split.sections: their sum must be the dimension's size 6");
  expect(
      [](LogicalTensor* t) {
        t->shape = {1, uint64_t{1} << 39};
        t->split = {.dim = 0, .sections = {}, .unit = 4};
      },
      "split.unit=4: must be in [1, 2]");
  expect([](LogicalTensor* t) { t->experts = 2; }, "experts=2: must be -1 or");
  expect([](LogicalTensor* t) { t->shape = {5}, t->experts = 0; }, "5 experts: must be a multiple");
  expect([](LogicalTensor* t) { t->stages = Stages::kLayer; }, "layer=0: must be below");
}

TEST(ParallelLayoutTest, RefusesMoreBytesThanANumberHolds) {
  Parallel parallel;
  parallel.data = 4;
  LogicalTensor tensor;
  tensor.name = "a";
  tensor.shape = {kMaxElements};
  tensor.element_bytes = kMaxElementBytes;
  EXPECT_TRUE(ParallelLayout::Make(parallel, {}, {tensor}).ok());
  LogicalTensor other = tensor;
  other.name = "b";
  other.shape = {1};
  EXPECT_THAT(ParallelLayout::Make(parallel, {}, {tensor, other}).status().message(),
              HasSubstr("tensor b: all tensors up to this one on 4 slots have more than 2^62"));
}

TEST(ParallelLayoutTest, RefusesBlocksThatAreTooMany) {
  Parallel parallel;
  parallel.data = 2;
  LogicalTensor tensor;
  tensor.name = "w";
  tensor.role = Role::kOptimizer;
  tensor.shape = {1 << 20};
  const auto made =
      ParallelLayout::Make(parallel, {.stage = 1, .way = ZeroWay::kBlocks, .block = 4}, {tensor});
  EXPECT_THAT(made.status().message(),
              HasSubstr("zero: block=4: gives each slot 131072 blocks of tensor w: must give at"));
}

// ---- any layout
// -----------------------------------------------------------------------------------

// Every element is as often in the world as every other one, and where two slots have one class,
// they have the same pieces.
TEST(ParallelLayoutTest, EveryElementIsInEachReplicaOnce) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    AnyLayout any(seed);
    const Parallel parallel = any.NewParallel();
    std::vector<LogicalTensor> tensors;
    for (uint64_t n = any.In(1, 4); n > 0; --n) tensors.push_back(any.NewTensor(parallel));
    const auto layout = ParallelLayout::Make(parallel, any.NewZero(), tensors);
    ASSERT_TRUE(layout.ok()) << "seed " << seed << ": " << layout.status();
    for (size_t t = 0; t < tensors.size(); ++t) {
      std::map<uint64_t, uint32_t> count;
      std::map<uint32_t, std::vector<Piece>> of_class;
      for (uint32_t slot = 0; slot < layout->slots(); ++slot) {
        for (const uint64_t element : Elements(*layout, t, slot)) ++count[element];
        const std::optional<uint32_t> number = layout->ClassOf(t, slot);
        const std::vector<Piece> pieces = layout->PiecesOf(t, slot);
        if (!number) {
          EXPECT_TRUE(pieces.empty());
          continue;
        }
        EXPECT_LT(*number, layout->Classes(t));
        const auto [same, first] = of_class.emplace(*number, pieces);
        EXPECT_EQ(same->second, pieces) << "seed " << seed;
      }
      ASSERT_EQ(count.size(), Chunk::Whole(tensors[t].shape).elements()) << "seed " << seed;
      for (const auto& [element, times] : count) {
        ASSERT_EQ(times, count.begin()->second) << "seed " << seed << " element " << element;
      }
    }
  }
}

}  // namespace
}  // namespace rewire::state
