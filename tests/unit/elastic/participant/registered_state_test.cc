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
  state_.SetReady(&names_);
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
