// Calls out of order, and the trace's content. tests/process/moe_fsep tests the schedule in use.
#include "reconfig/moe/fsep/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/moe/fsep/driver.h"
#include "tests/unit/simgpu_nccl/world.h"

namespace rewire::moe::fsep {
namespace {

using simnccl::Rank;
using ::testing::HasSubstr;

constexpr Duration kPatience = seconds(60);

std::unique_ptr<Exchange> OneRank(ncclComm_t comm, uint32_t layers) {
  const NcclCalls calls{ncclGetErrorString, ncclCommCount, ncclCommUserRank, ncclGroupStart,
                        ncclGroupEnd,       ncclSend,      ncclRecv};
  const Shape shape{{1, 1}, 0, 2, 3, 8, 4, Gradient::kFloat32};
  auto exchange = Exchange::Create(Driver(), calls, comm, shape, layers);
  EXPECT_TRUE(exchange.ok()) << exchange.status();
  return *std::move(exchange);
}

TEST(ScheduleTest, RefusesCallsOutOfOrderAndContinues) {
  simnccl::OnRanks(1, [](int, ncclComm_t comm, Rank& gpu) {
    const auto stream = reinterpret_cast<CUstream>(gpu.stream());
    const LayerShards shards{reinterpret_cast<CUdeviceptr>(gpu.Alloc(64)),
                             reinterpret_cast<CUdeviceptr>(gpu.Alloc(64))};
    EXPECT_THAT(
        Schedule::Create(Driver(), OneRank(comm, 1), {shards}, 2, nullptr).status().ToString(),
        HasSubstr("prefetch=2: must be 0 to 1"));
    EXPECT_THAT(Schedule::Create(Driver(), OneRank(comm, 1), {}, 0, nullptr).status().ToString(),
                HasSubstr("layers=0"));
    // The depth is larger than a step's number of visits.
    auto made = Schedule::Create(Driver(), OneRank(comm, 3), {shards, shards, shards}, 3, nullptr);
    ASSERT_TRUE(made.ok()) << made.status();
    Schedule& schedule = **made;
    EXPECT_THAT(schedule.Begin({{3, false}}, stream).ToString(),
                HasSubstr("layer=3: must be below layers=3"));
    EXPECT_THAT(schedule.Begin({}, stream).ToString(), HasSubstr("visits=0"));
    EXPECT_THAT(schedule.Begin({{0, false}}, stream).ToString(),
                HasSubstr("layer 0 has no placement"));
    ASSERT_TRUE(schedule.Place(0, {3, {0, 1, 1}}, kPatience).ok());
    EXPECT_THAT(schedule.Finish(stream).ToString(),
                HasSubstr("Finish: called out of order: Begin is due"));
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(schedule.Begin(ForwardAndBackward(1), stream).ok());
      EXPECT_THAT(schedule.Place(0, {3, {0, 0, 1}}, kPatience).ToString(),
                  HasSubstr("Place: called out of order: BeginTokens is due, at visit 0 of 2"));
      for (const bool gradients : {false, true}) {
        EXPECT_THAT(schedule.EndTokens(stream).ToString(), HasSubstr("BeginTokens is due"));
        ASSERT_TRUE(schedule.BeginTokens(stream).ok());
        ASSERT_TRUE(schedule.EndTokens(stream).ok());
        EXPECT_THAT(schedule.EndExperts(stream).ToString(), HasSubstr("BeginExperts is due"));
        const auto slots = schedule.BeginExperts(stream);
        ASSERT_TRUE(slots.ok()) << slots.status();
        EXPECT_EQ(slots->gradients != 0, gradients);
        EXPECT_THAT(schedule.BeginTokens(stream).ToString(), HasSubstr("EndExperts is due"));
        ASSERT_TRUE(schedule.EndExperts(stream).ok());
        ASSERT_TRUE(schedule.BeginTokens(stream).ok());
        EXPECT_THAT(schedule.Finish(stream).ToString(), HasSubstr("EndTokens is due"));
        ASSERT_TRUE(schedule.EndTokens(stream).ok());
      }
      EXPECT_THAT(schedule.Begin(ForwardAndBackward(1), stream).ToString(),
                  HasSubstr("Finish is due"));
      ASSERT_TRUE(schedule.Finish(stream).ok());
    }
    ASSERT_TRUE(gpu.Sync());
  });
}

TEST(ScheduleTest, PlaceTimesOutWhileTheLastStepRuns) {
  simnccl::OnRanks(1, [](int, ncclComm_t comm, Rank& gpu) {
    const auto stream = reinterpret_cast<CUstream>(gpu.stream());
    const LayerShards shards{reinterpret_cast<CUdeviceptr>(gpu.Alloc(64)),
                             reinterpret_cast<CUdeviceptr>(gpu.Alloc(64))};
    auto made = Schedule::Create(Driver(), OneRank(comm, 1), {shards}, 1, nullptr);
    ASSERT_TRUE(made.ok()) << made.status();
    Schedule& schedule = **made;
    ASSERT_TRUE(schedule.Place(0, {3, {0, 1, 1}}, kPatience).ok());
    std::promise<void> gate;
    std::shared_future<void> opened = gate.get_future();
    const auto hold = [](void* opens) { static_cast<std::shared_future<void>*>(opens)->wait(); };
    ASSERT_EQ(Driver().LaunchHostFunc(stream, hold, &opened), CUDA_SUCCESS);
    ASSERT_TRUE(schedule.Begin({{0, true}}, stream).ok());
    EXPECT_TRUE(schedule.BeginTokens(stream).ok());
    EXPECT_TRUE(schedule.EndTokens(stream).ok());
    EXPECT_TRUE(schedule.BeginExperts(stream).ok());
    EXPECT_TRUE(schedule.EndExperts(stream).ok());
    EXPECT_TRUE(schedule.BeginTokens(stream).ok());
    EXPECT_TRUE(schedule.EndTokens(stream).ok());
    EXPECT_TRUE(schedule.Finish(stream).ok());
    // The expert is there already.
    EXPECT_TRUE(schedule.Place(0, {3, {0, 1, 1}}, milliseconds(20)).ok());
    const absl::Status stuck = schedule.Place(0, {3, {0, 0, 1}}, milliseconds(20));
    EXPECT_EQ(stuck.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(stuck.ToString(),
                HasSubstr("gradients of the last step: not reduced within 20 ms"));
    gate.set_value();
    EXPECT_TRUE(schedule.Place(0, {3, {0, 0, 1}}, kPatience).ok());
    ASSERT_TRUE(gpu.Sync());
  });
}

TEST(ScheduleTest, VisitsLayersForwardAndThenInReverse) {
  std::vector<std::pair<uint32_t, bool>> visits;
  for (const Visit& v : ForwardAndBackward(2)) visits.push_back({v.layer, v.gradients});
  EXPECT_THAT(visits, testing::ElementsAre(std::pair(0u, false), std::pair(1u, false),
                                           std::pair(1u, true), std::pair(0u, true)));
}

TEST(StreamTraceTest, RecordsSpansInStreamOrder) {
  simnccl::OnThreads(1, [](int) {
    Rank gpu(0);
    const auto stream = reinterpret_cast<CUstream>(gpu.stream());
    auto made = StreamTrace::Create(Driver(), stream);
    ASSERT_TRUE(made.ok()) << made.status();
    StreamTrace& trace = **made;
    EXPECT_FALSE(trace.End(Track::kTokens, stream).ok());
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE(trace.Begin(Track::kTokens, "a", stream).ok());
      ASSERT_TRUE(trace.Begin(Track::kWeights, "b", stream).ok());
      ASSERT_TRUE(trace.End(Track::kTokens, stream).ok());
      const auto spans = trace.Take();
      ASSERT_TRUE(spans.ok()) << spans.status();
      ASSERT_EQ(spans->size(), 1u + (round > 0));
      for (const TraceSpan& span : *spans) EXPECT_LE(span.begin_us, span.end_us);
      ASSERT_TRUE(trace.End(Track::kWeights, stream).ok());
    }
    const auto last = trace.Take();
    ASSERT_TRUE(last.ok()) << last.status();
    ASSERT_EQ(last->size(), 1u);
    EXPECT_EQ(last->front().name, "b");
  });
}

TEST(StreamTraceTest, ComputesOverlapOfTracks) {
  const std::vector<TraceSpan> spans = {{Track::kTokens, "t", 10, 20},
                                        {Track::kWeights, "w", 0, 10},
                                        {Track::kWeights, "v", 18, 30},
                                        {Track::kExperts, "e", 0, 100}};
  EXPECT_EQ(OverlapUs(spans, Track::kTokens, Track::kWeights), 2);
  EXPECT_EQ(OverlapUs(spans, Track::kExperts, Track::kWeights), 22);
  const std::string json = TraceJson(spans, 7);
  EXPECT_THAT(json, HasSubstr(R"("cat":"weights","dur":12.0,"name":"v","ph":"X","pid":7)"));
  EXPECT_THAT(json, HasSubstr("rank 7"));
}

}  // namespace
}  // namespace rewire::moe::fsep
