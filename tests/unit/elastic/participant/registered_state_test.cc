// The registered tensors, their adoption, and the memory that goes back to the program.
#include "reconfig/elastic/participant/registered_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "reconfig/elastic/participant/shape_list.h"

namespace rewire::elastic {
namespace {

using Discards = std::vector<std::pair<std::string, void*>>;

class RegisteredStateTest : public ::testing::Test {
 protected:
  RegisteredStateTest() {
    state::PlacedTensor tensor;
    tensor.shape = {"m", 8, 1, state::Division::kSharded, state::Change::kConstant};
    tensor.part = {0, 4};
    tensor.place.data = bytes_;
    state_.AddTensor(tensor);
  }
  NewPart Part(char* data) { return {1, {0, 2}, {state::MemoryKind::kHost, data, nullptr}}; }

  uint64_t updates_ = 3;
  char bytes_[8] = {};
  RegisteredState state_{&updates_};
  Names names_{{0, 1, ""}};
};

TEST_F(RegisteredStateTest, CarriesTheNumberOfUpdatesAsTheFirstTensor) {
  const auto tensors = state_.Tensors();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].shape.name, "rewire/updates");
  EXPECT_EQ(tensors[0].place.data, reinterpret_cast<char*>(&updates_));
  EXPECT_EQ(tensors[1].shape.name, "m");
}

TEST_F(RegisteredStateTest, PublishesItsTensorsWhenReady) {
  EXPECT_FALSE(state_.WaitReady(Now()).has_value());
  EXPECT_EQ(names_.Find(kShapesName), std::nullopt);
  ASSERT_TRUE(state_.SetReady(2, 0, &names_).ok());
  const auto ready = state_.WaitReady(Now() + seconds(600));
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->tensors.size(), 2u);
  const auto shapes = DecodeShapes(names_.Find(kShapesName).value());
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ(shapes->size(), 2u);
  // The first member of a world compares with nobody.
  const World alone{1, {{0, 1, ""}}};
  EXPECT_TRUE(
      RegisteredState::CheckShapes(alone, 0, names_, seconds(1), [] { return false; }).ok());
}

// The program's layout: one slot has the whole tensor, and two slots have halves of it.
const char* Halves(void*, uint32_t slots) {
  if (slots == 1) return R"({"parallel": {}, "tensors": [{"name": "w", "shape": [4, 3]}]})";
  if (slots != 2) return nullptr;
  return R"({"parallel": {"tensor": 2},
             "tensors": [{"name": "w", "shape": [4, 3], "split": {"dim": 0}}]})";
}

class RegisteredLayoutTest : public ::testing::Test {
 protected:
  RegisteredLayoutTest() {
    rewireCallbacks_t callbacks = {};
    callbacks.layout = Halves;
    state_.SetCallbacks(callbacks);
  }
  // Registers the tensor with this number of elements in the slot's memory.
  absl::Status Ready(uint64_t elements, uint32_t slots) {
    state::PlacedTensor tensor;
    tensor.shape = {"w", elements, 1, state::Division::kByLayout};
    tensor.part = {0, elements};
    tensor.place.data = bytes_;
    state_.AddTensor(tensor);
    return state_.SetReady(slots, slots - 1, &names_);
  }

  uint64_t updates_ = 0;
  char bytes_[12] = {};
  RegisteredState state_{&updates_};
  Names names_{{0, 1, ""}};
};

TEST_F(RegisteredLayoutTest, MembersCompareTheWholeTensor) {
  ASSERT_TRUE(Ready(6, 2).ok());
  EXPECT_EQ(state_.layout()->slots(), 2u);
  const auto shapes = DecodeShapes(names_.Find(kShapesName).value());
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ(shapes->back().elements, 12u);
  EXPECT_EQ(shapes->back().division, state::Division::kByLayout);
  EXPECT_EQ(state_.Tensors().back().part, (state::Box{0, 6}));
}

TEST_F(RegisteredLayoutTest, MemoryOfAnotherSizeIsRefused) {
  EXPECT_EQ(Ready(12, 2).message(),
            "tensor w: elements=12: must be 6, the size of slot 1's memory in the layout of 2 "
            "slots");
  EXPECT_EQ(state_.layout(), nullptr);
  EXPECT_EQ(names_.Find(kShapesName), std::nullopt);
}

TEST_F(RegisteredLayoutTest, AProgramMayHaveNoLayoutForANumberOfSlots) {
  EXPECT_EQ(Ready(4, 3).message(),
            "layout of 3 slots: the layout callback returned NULL: the program has none");
}

TEST_F(RegisteredStateTest, AdoptPlacesTheTensorAtItsNewPart) {
  char fresh[2];
  const state::PlacedTensor adopted = state_.Adopt(Part(fresh));
  EXPECT_EQ(adopted.shape.name, "m");
  EXPECT_EQ(state_.Tensors()[1].place.data, fresh);
  EXPECT_EQ(state_.Tensors()[1].part, (state::Box{0, 2}));
}

TEST_F(RegisteredStateTest, GivesUnusedMemoryBackOnce) {
  Discards discards;
  rewireCallbacks_t callbacks = {};
  callbacks.arg = &discards;
  callbacks.discard = [](void* arg, const char* name, void* data) {
    static_cast<Discards*>(arg)->emplace_back(name, data);
  };
  state_.SetCallbacks(callbacks);
  char fresh[2];
  EXPECT_FALSE(state_.Discard({Part(nullptr)}));  // nothing was allocated
  EXPECT_TRUE(state_.Discard({Part(fresh)}));
  EXPECT_TRUE(discards.empty());
  state_.RunDiscards();
  state_.RunDiscards();
  EXPECT_EQ(discards, (Discards{{"m", fresh}}));
}

}  // namespace
}  // namespace rewire::elastic
