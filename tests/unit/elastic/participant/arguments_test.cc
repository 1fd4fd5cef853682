// Wrong calls of the C interface. Each call returns the result that rewire.h promises and a reason
// that names the error, and has no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rewire/rewire.h"

namespace rewire::elastic {
namespace {

using ::testing::HasSubstr;

// Expects the result of one call, and all names that its reason must contain.
void ExpectRefused(rewireResult_t got, rewireResult_t expected,
                   const std::vector<std::string>& named) {
  EXPECT_EQ(got, expected) << rewireLastError();
  for (const std::string& name : named) EXPECT_THAT(rewireLastError(), HasSubstr(name));
}

// Passes an invalid value, as a C program can.
template <typename Enum>
void SetNumber(Enum* value, int number) {
  static_assert(sizeof *value == sizeof number);
  memcpy(value, &number, sizeof number);
}

int Succeed(void* arg) {
  if (arg != nullptr) ++*static_cast<int*>(arg);
  return 0;
}
void* MakePart(void*, const char*, uint64_t) { return nullptr; }
void TakePart(void*, const char*, void*, uint64_t, uint64_t) {}
void DropPart(void*, const char*, void*) {}

class ArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("REWIRE_SOCKET");
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    ASSERT_EQ(rewireAttach(nullptr, &context_), rewireSuccess) << rewireLastError();
  }
  void TearDown() override {
    if (context_ != nullptr) {
      EXPECT_EQ(rewireDetach(context_), rewireSuccess);
    }
  }
  void Update() { ASSERT_EQ(rewireUpdate(context_, Succeed, nullptr, &outcome_), rewireSuccess); }

  rewireContext_t context_ = nullptr;
  rewireWorld_t world_ = {sizeof world_, 0, 0, 0, 0, 0};
  rewireParallel_t parallel_ = {sizeof parallel_, 0, 0};
  rewireCallbacks_t callbacks_ = {sizeof callbacks_, nullptr, MakePart, TakePart,
                                  DropPart,          nullptr, nullptr,  nullptr};
  rewireOutcome_t outcome_ = {sizeof outcome_, rewireContinue, 0, {}, 0, 0, 0};
  rewireGroup_t group_ = {sizeof group_, 0, 0};
  char bytes_[64] = {};
  rewireTensor_t tensor_ = {sizeof tensor_,   "weights",      16,         4,
                            rewireReplicated, rewireConstant, rewireHost, bytes_};
};

TEST_F(ArgumentsTest, RejectsNull) {
  using Call = std::function<rewireResult_t()>;
  char id[128];
  const struct {
    Call call;
    const char* function;
    const char* argument;
  } kCalls[] = {
      {[] { return rewireAttach(nullptr, nullptr); }, "rewireAttach", "context is NULL"},
      {[] { return rewireDetach(nullptr); }, "rewireDetach", "context is NULL"},
      {[&] { return rewireWorld(nullptr, &world_); }, "rewireWorld", "context is NULL"},
      {[&] { return rewireWorld(context_, nullptr); }, "rewireWorld", "world is NULL"},
      {[&] { return rewireUniqueId(nullptr, "a", id); }, "rewireUniqueId", "context is NULL"},
      {[&] { return rewireUniqueId(context_, nullptr, id); }, "rewireUniqueId", "name is NULL"},
      {[&] { return rewireUniqueId(context_, "a", nullptr); }, "rewireUniqueId", "id128 is NULL"},
      {[&] { return rewireGroupId(nullptr, "a", "tp", &group_, id); }, "rewireGroupId",
       "context is NULL"},
      {[&] { return rewireGroupId(context_, nullptr, "tp", &group_, id); }, "rewireGroupId",
       "name is NULL"},
      {[&] { return rewireGroupId(context_, "a", nullptr, &group_, id); }, "rewireGroupId",
       "axes is NULL"},
      {[&] { return rewireGroupId(context_, "a", "tp", nullptr, id); }, "rewireGroupId",
       "group is NULL"},
      {[&] { return rewireGroupId(context_, "a", "tp", &group_, nullptr); }, "rewireGroupId",
       "id128 is NULL"},
      {[&] { return rewireSetParallel(nullptr, &parallel_, &callbacks_); }, "rewireSetParallel",
       "context is NULL"},
      {[&] { return rewireSetParallel(context_, nullptr, &callbacks_); }, "rewireSetParallel",
       "parallel is NULL"},
      {[&] { return rewireSetParallel(context_, &parallel_, nullptr); }, "rewireSetParallel",
       "callbacks is NULL"},
      {[&] { return rewireRegisterTensor(nullptr, &tensor_); }, "rewireRegisterTensor",
       "context is NULL"},
      {[&] { return rewireRegisterTensor(context_, nullptr); }, "rewireRegisterTensor",
       "tensor is NULL"},
      {[&] { return rewireUpdate(nullptr, Succeed, nullptr, &outcome_); }, "rewireUpdate",
       "context is NULL"},
      {[&] { return rewireUpdate(context_, nullptr, nullptr, &outcome_); }, "rewireUpdate",
       "update is NULL"},
      {[&] { return rewireRecover(nullptr, &outcome_); }, "rewireRecover", "context is NULL"},
      {[&] { return rewireRecover(context_, nullptr); }, "rewireRecover", "outcome is NULL"},
  };
  for (const auto& c : kCalls) {
    ExpectRefused(c.call(), rewireInvalidArgument, {c.function, c.argument});
  }
}

TEST_F(ArgumentsTest, RejectsSizeBelowStruct) {
  rewireAttachOptions_t options = {sizeof options - 1, 0, 0};
  rewireContext_t none = context_;
  ExpectRefused(rewireAttach(&options, &none), rewireInvalidArgument,
                {"rewireAttach", "options->size=15", "sizeof(rewireAttachOptions_t)=16"});
  EXPECT_EQ(none, nullptr);
  options = {sizeof options, 2, 0};
  ExpectRefused(rewireAttach(&options, &none), rewireInvalidArgument,
                {"rewireAttach", "options->sigterm_is_reclaim=2", "must be 0 or 1"});
  options = {sizeof options, 0, 7};
  ExpectRefused(rewireAttach(&options, &none), rewireInvalidArgument,
                {"rewireAttach", "options->reserved=7", "must be 0"});
  for (const size_t size : {size_t{0}, sizeof world_ - 1}) {
    const std::string is = "->size=" + std::to_string(size);
    world_.size = size;
    ExpectRefused(rewireWorld(context_, &world_), rewireInvalidArgument,
                  {"rewireWorld", "world" + is, "sizeof(rewireWorld_t)"});
  }
  parallel_.size = 3;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"rewireSetParallel", "parallel->size=3", "sizeof(rewireParallel_t)"});
  parallel_.size = sizeof parallel_;
  callbacks_.size = 4;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"rewireSetParallel", "callbacks->size=4", "sizeof(rewireCallbacks_t)"});
  tensor_.size = 5;
  ExpectRefused(rewireRegisterTensor(context_, &tensor_), rewireInvalidArgument,
                {"rewireRegisterTensor", "tensor->size=5", "sizeof(rewireTensor_t)"});
  outcome_.size = 6;
  int updates = 0;
  ExpectRefused(rewireUpdate(context_, Succeed, &updates, &outcome_), rewireInvalidArgument,
                {"rewireUpdate", "outcome->size=6", "sizeof(rewireOutcome_t)"});
  EXPECT_EQ(updates, 0);
  ExpectRefused(rewireRecover(context_, &outcome_), rewireInvalidArgument,
                {"rewireRecover", "outcome->size=6", "sizeof(rewireOutcome_t)"});
}

// A program built with a later header has more members at the end.
TEST_F(ArgumentsTest, AcceptsLargerSizeOfLaterVersion) {
  world_.size += 8;
  EXPECT_EQ(rewireWorld(context_, &world_), rewireSuccess) << rewireLastError();
  EXPECT_EQ(world_.slot, 1u);
  EXPECT_EQ(world_.slots, 3u);
  tensor_.size += 8;
  EXPECT_EQ(rewireRegisterTensor(context_, &tensor_), rewireSuccess) << rewireLastError();
}

TEST_F(ArgumentsTest, RejectsInvalidTensors) {
  const std::string too_long(1025, 'n');
  const struct {
    std::function<void(rewireTensor_t*)> change;
    std::vector<std::string> named;
  } kTensors[] = {
      {[](auto* t) { t->name = nullptr; }, {"name"}},
      {[](auto* t) { t->name = ""; }, {"name", "1 to 1024"}},
      {[&](auto* t) { t->name = too_long.c_str(); }, {"name", "1 to 1024"}},
      {[](auto* t) {
         t->name =
             "\xff"
             "w";
       },
       {"tensor \\xffw", "must be valid UTF-8"}},
      {[](auto* t) { t->elements = 0; }, {"weights", "elements=0"}},
      {[](auto* t) { t->element_bytes = 0; }, {"weights", "element_bytes=0"}},
      {[](auto* t) { t->elements = UINT64_MAX / 2; }, {"weights", "elements=9223372036854775807"}},
      {[](auto* t) { SetNumber(&t->layout, 3); }, {"weights", "layout=3"}},
      {[](auto* t) { SetNumber(&t->change, 3); }, {"weights", "change=3"}},
      {[](auto* t) { SetNumber(&t->memory, 7); }, {"weights", "memory=7"}},
      {[](auto* t) { t->data = nullptr; }, {"weights", "data=NULL"}},
  };
  for (const auto& c : kTensors) {
    rewireTensor_t wrong = tensor_;
    c.change(&wrong);
    ExpectRefused(rewireRegisterTensor(context_, &wrong), rewireInvalidArgument, c.named);
  }
  // None of the refused calls has taken the name.
  EXPECT_EQ(rewireRegisterTensor(context_, &tensor_), rewireSuccess) << rewireLastError();
  ExpectRefused(rewireRegisterTensor(context_, &tensor_), rewireInvalidArgument,
                {"rewireRegisterTensor", "weights", "already registered"});
}

TEST_F(ArgumentsTest, EmptyPartNeedsNoData) {
  // Two elements over three slots: one element each, and none for the last slot.
  setenv("RANK", "2", 1);
  rewireContext_t last = nullptr;
  ASSERT_EQ(rewireAttach(nullptr, &last), rewireSuccess);
  tensor_.layout = rewireSharded;
  tensor_.elements = 2;
  tensor_.data = nullptr;
  ExpectRefused(rewireRegisterTensor(context_, &tensor_), rewireInvalidArgument,
                {"weights", "data=NULL"});
  EXPECT_EQ(rewireRegisterTensor(last, &tensor_), rewireSuccess) << rewireLastError();
  EXPECT_EQ(rewireDetach(last), rewireSuccess);
}

TEST_F(ArgumentsTest, RejectsInvalidParallelism) {
  parallel_.data_parallel = 2;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"rewireSetParallel", "data_parallel=2"});
  parallel_.data_parallel = 0;
  parallel_.zero_stage = 2;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"rewireSetParallel", "zero_stage=2"});
  parallel_.zero_stage = 1;
  const rewireCallbacks_t whole = callbacks_;
  callbacks_.allocate = nullptr;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"rewireSetParallel", "zero_stage=1", "allocate"});
  callbacks_ = whole;
  callbacks_.adopt = nullptr;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"rewireSetParallel", "zero_stage=1", "adopt"});
  callbacks_ = whole;
  callbacks_.discard = nullptr;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"rewireSetParallel", "zero_stage=1", "discard"});
  EXPECT_EQ(rewireSetParallel(context_, &parallel_, &whole), rewireSuccess) << rewireLastError();
}

TEST_F(ArgumentsTest, RejectsShardedStateWithoutZeroStage) {
  tensor_.layout = rewireSharded;
  ASSERT_EQ(rewireRegisterTensor(context_, &tensor_), rewireSuccess) << rewireLastError();
  for (const bool set : {false, true}) {
    ExpectRefused(rewireUpdate(context_, Succeed, nullptr, &outcome_), rewireInvalidUsage,
                  {"rewireUpdate: tensor weights is sharded", "zero_stage=1"});
    parallel_.zero_stage = set ? 1 : 0;
    EXPECT_EQ(rewireSetParallel(context_, &parallel_, &callbacks_), rewireSuccess);
  }
  Update();
}

TEST_F(ArgumentsTest, RejectsDividedStateWithoutTheLayoutCallback) {
  tensor_.layout = rewireByLayout;
  tensor_.elements = 0;
  tensor_.data = nullptr;
  ASSERT_EQ(rewireRegisterTensor(context_, &tensor_), rewireSuccess) << rewireLastError();
  ExpectRefused(rewireUpdate(context_, Succeed, nullptr, &outcome_), rewireInvalidUsage,
                {"rewireUpdate: tensor weights is rewireByLayout", "callback layout"});
  callbacks_.layout = [](void*, uint32_t) { return "{}"; };
  callbacks_.discard = nullptr;
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidArgument,
                {"callback layout is set", "discard must be set"});
  callbacks_.discard = DropPart;
  EXPECT_EQ(rewireSetParallel(context_, &parallel_, &callbacks_), rewireSuccess);
  Update();
}

TEST_F(ArgumentsTest, RejectsRegistrationAfterFirstUpdate) {
  Update();
  ExpectRefused(rewireRegisterTensor(context_, &tensor_), rewireInvalidUsage,
                {"rewireRegisterTensor", "weights", "before the first rewireUpdate()"});
  ExpectRefused(rewireSetParallel(context_, &parallel_, &callbacks_), rewireInvalidUsage,
                {"rewireSetParallel", "before the first rewireUpdate()"});
  Update();
}

TEST_F(ArgumentsTest, EveryUpdateTellsTheWorld) {
  for (int update = 0; update < 3; ++update) {
    outcome_.world = {};
    Update();
    EXPECT_EQ(outcome_.world.size, sizeof(rewireWorld_t));
    EXPECT_EQ(outcome_.world.slots, 3u);
    EXPECT_EQ(outcome_.world.slot, 1u);
  }
}

TEST_F(ArgumentsTest, ReportsFailedUpdateFunction) {
  const auto fail = [](void*) { return 7; };
  ExpectRefused(rewireUpdate(context_, fail, nullptr, &outcome_), rewireUnavailable,
                {"rewireUpdate", "update function returned 7"});
  // The call may be repeated.
  Update();
}

TEST_F(ArgumentsTest, ChecksNamesOfUniqueIds) {
  char id[128];
  ExpectRefused(rewireUniqueId(context_, "", id), rewireInvalidArgument,
                {"rewireUniqueId", "name", "1 to 256"});
  ExpectRefused(rewireUniqueId(context_, std::string(257, 'n').c_str(), id), rewireInvalidArgument,
                {"rewireUniqueId", "name", "1 to 256"});
  for (const std::string& name : {std::string(), std::string(129, 'n')}) {
    ExpectRefused(rewireGroupId(context_, name.c_str(), "tp", &group_, id), rewireInvalidArgument,
                  {"rewireGroupId", "name", "1 to 128"});
  }
}

TEST_F(ArgumentsTest, ReportsMissingAgent) {
  char id[128];
  ExpectRefused(rewireUniqueId(context_, "world", id), rewireUnavailable,
                {"rewireUniqueId", "no agent", "REWIRE_SOCKET"});
  ExpectRefused(rewireGroupId(context_, "tensor", "tp", &group_, id), rewireUnavailable,
                {"rewireGroupId", "no agent", "REWIRE_SOCKET"});
  ExpectRefused(rewireRecover(context_, &outcome_), rewireUnavailable,
                {"rewireRecover", "no agent", "REWIRE_SOCKET"});
}

TEST_F(ArgumentsTest, RejectsDetachedContext) {
  const rewireContext_t gone = std::exchange(context_, nullptr);
  ASSERT_EQ(rewireDetach(gone), rewireSuccess);
  char id[128];
  int updates = 0;
  const std::string detached = "has been detached";
  ExpectRefused(rewireWorld(gone, &world_), rewireInvalidUsage, {"rewireWorld", detached});
  ExpectRefused(rewireUniqueId(gone, "a", id), rewireInvalidUsage, {"rewireUniqueId", detached});
  ExpectRefused(rewireGroupId(gone, "a", "tp", &group_, id), rewireInvalidUsage,
                {"rewireGroupId", detached});
  ExpectRefused(rewireSetParallel(gone, &parallel_, &callbacks_), rewireInvalidUsage,
                {"rewireSetParallel", detached});
  ExpectRefused(rewireRegisterTensor(gone, &tensor_), rewireInvalidUsage,
                {"rewireRegisterTensor", detached});
  ExpectRefused(rewireUpdate(gone, Succeed, &updates, &outcome_), rewireInvalidUsage,
                {"rewireUpdate", detached});
  EXPECT_EQ(updates, 0);
  ExpectRefused(rewireRecover(gone, &outcome_), rewireInvalidUsage, {"rewireRecover", detached});
  ExpectRefused(rewireDetach(gone), rewireInvalidUsage, {"rewireDetach", detached});
  // A job without an agent may attach again; the old context stays valid.
  rewireContext_t again = nullptr;
  ASSERT_EQ(rewireAttach(nullptr, &again), rewireSuccess);
  EXPECT_NE(again, gone);
  ExpectRefused(rewireWorld(gone, &world_), rewireInvalidUsage, {detached});
  EXPECT_EQ(rewireDetach(again), rewireSuccess);
}

TEST_F(ArgumentsTest, KeepsLastErrorPerThread) {
  EXPECT_EQ(rewireDetach(nullptr), rewireInvalidArgument);
  std::thread other([] { EXPECT_EQ(rewireAttach(nullptr, nullptr), rewireInvalidArgument); });
  other.join();
  EXPECT_THAT(rewireLastError(), HasSubstr("rewireDetach"));
}

TEST_F(ArgumentsTest, ReadsRankAndWorldSize) {
  const struct {
    const char* rank;
    const char* size;
    std::vector<std::string> named;
  } kPlaces[] = {
      {"x", "3", {"RANK=x", "0 to 1000000"}},
      {"", "3", {"RANK=: ", "0 to 1000000"}},
      {"-1", "3", {"RANK=-1", "0 to 1000000"}},
      {"1.5", "3", {"RANK=1.5", "0 to 1000000"}},
      {"0", "1000001", {"WORLD_SIZE=1000001"}},
      {"0", "all", {"WORLD_SIZE=all"}},
      {"3", "3", {"RANK=3", "must be below WORLD_SIZE=3"}},
      {"0", "0", {"RANK=0", "WORLD_SIZE=0"}},
  };
  for (const auto& p : kPlaces) {
    setenv("RANK", p.rank, 1);
    setenv("WORLD_SIZE", p.size, 1);
    rewireContext_t none = context_;
    ExpectRefused(rewireAttach(nullptr, &none), rewireInvalidArgument, p.named);
    EXPECT_EQ(none, nullptr);
  }
}

// The settings of a process are read once, so each of these tests runs in its own process.
class AttachDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  // Attaches with these variables. Prints the result and the reason, and exits with 1 if the call
  // was not refused.
  [[noreturn]] static void AttachWith(const std::vector<std::pair<const char*, const char*>>& env) {
    for (const auto& [name, value] : env) setenv(name, value, 1);
    rewireContext_t context = nullptr;
    const rewireResult_t result = rewireAttach(nullptr, &context);
    fprintf(stderr, "%s: %s\n", rewireResultString(result), rewireLastError());
    exit(result == rewireSuccess || context != nullptr ? 1 : 0);
  }
};

TEST_F(AttachDeathTest, RejectsInvalidSettings) {
  const auto refused = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(AttachWith({{"REWIRE_BUILD_MS", "soon"}}), refused,
              "invalid argument: .*REWIRE_BUILD_MS=soon.* 100 to 3600000");
  EXPECT_EXIT(AttachWith({{"REWIRE_BUDDY", "maybe"}}), refused,
              "invalid argument: .*REWIRE_BUDDY=maybe.*from 0 to 1");
  EXPECT_EXIT(AttachWith({{"REWIRE_SOCKET", "/nowhere/agent.sock"}}), refused,
              "invalid argument: .*REWIRE_MEMBER");
}

TEST(ResultTest, EveryResultHasText) {
  for (int r = rewireSuccess; r <= rewireInternalError; ++r) {
    EXPECT_STRNE(rewireResultString(static_cast<rewireResult_t>(r)), "unknown result") << r;
  }
  EXPECT_STREQ(rewireResultString(static_cast<rewireResult_t>(99)), "unknown result");
}

}  // namespace
}  // namespace rewire::elastic
