// Tests expert balancing through the C interface, with two processes on the simulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/moe-exec/crew.h"
#include "bench/moe-exec/sim_device.h"
#include "rewire/rewire_moe.h"

namespace rewire::bench {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr uint32_t kOwn = 2;
constexpr size_t kRow = 64;  // bytes
constexpr size_t kWeights = 256;
constexpr uint32_t kRows[2][kOwn] = {{90, 30}, {10, 6}};

rewireExpertsOptions_t Options(const std::string& name, uint32_t rank) {
  rewireExpertsOptions_t o{};
  o.size = sizeof o;
  o.name = name.c_str();
  o.rank = rank;
  o.ranks = 2;
  o.experts = kOwn;
  o.rows = 200;
  o.weight_bytes = o.grad_bytes = kWeights;
  o.token_bytes = kRow;
  o.dynamic = 2;
  o.patience_us = 20'000'000;
  return o;
}

void* At(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }

// Replaces a GEMM: out = x + errors + w, where all bytes of the expert's weights equal w. Every
// byte of the gradient is the number of rows. own: this rank's weights.
void Compute(const SimDevice& device, CUstream stream, const rewireSegment_t& s, const char* own) {
  device.Launch(stream, 0, [s, own] {
    const char weight = s.weights == nullptr ? own[(s.expert % kOwn) * kWeights]
                                             : static_cast<const char*>(s.weights)[kWeights / 2];
    const auto* x = static_cast<const char*>(s.x);
    const auto* errors = static_cast<const char*>(s.errors);
    for (uint32_t i = 0; i < s.rows * kRow; ++i) {
      static_cast<char*>(s.out)[i] =
          static_cast<char>(x[i] + weight + (errors == nullptr ? 0 : errors[i]));
    }
    if (s.grad != nullptr) std::memset(s.grad, static_cast<int>(s.rows), kWeights);
  });
}

// Makes the calling function print the error and return the failed line's number (modulo 256).
#define REQUIRE(condition) \
  if (!(condition))        \
  return fprintf(stderr, "%s: %s\n", #condition, rewireMoeLastError()), __LINE__ % 256

// Runs one rank: a forward and a backward round. Returns 0 or the number of the line that failed.
int Rank(const std::string& name, uint32_t rank, uint32_t* moved_rows) {
  SimDevice device(REWIRE_SIMGPU, static_cast<int>(rank));
  const CUstream stream = device.MakeStream();
  const uint32_t rows = kRows[rank][0] + kRows[rank][1];
  char* const memory = static_cast<char*>(At(device.Allocate(kOwn * kWeights)));
  char* const x = static_cast<char*>(At(device.Allocate(rows * kRow)));
  char* const out = static_cast<char*>(At(device.Allocate(rows * kRow)));
  device.Launch(stream, 0, [=] {
    for (uint32_t i = 0; i < kOwn * kWeights; ++i) {
      memory[i] = static_cast<char>(1 + rank * kOwn + i / kWeights);
    }
    for (uint32_t i = 0; i < rows * kRow; ++i) x[i] = static_cast<char>(i * 7 + rank);
  });
  const rewireExpertsOptions_t options = Options(name, rank);
  rewireExperts_t experts = nullptr;
  REQUIRE(rewireExpertsOpen(&options, &experts) == rewireSuccess);
  void* weights[kOwn * 2];
  for (uint32_t i = 0; i < kOwn * 2; ++i) weights[i] = memory + i * kWeights / 2;
  const uint64_t parts[2] = {kWeights / 2, kWeights / 2};
  rewireRound_t round{};
  round.size = sizeof round;
  round.stream = stream;
  round.parts = 2;
  round.tokens = kRows[rank];
  round.weights = weights;
  round.part_bytes = parts;
  round.x = x;
  round.out = out;
  rewireMoved_t moved = nullptr;
  for (const bool backward : {false, true}) {
    round.errors = backward ? x : nullptr;
    const rewireSegment_t* segments = nullptr;
    uint32_t count = 0;
    if (backward) {
      round.layer = 5;  // differs from the forward round's layer
      REQUIRE(rewireExpertsBegin(experts, &round, moved, &segments, &count) ==
              rewireInvalidArgument);
      round.layer = 0;
    }
    REQUIRE(rewireExpertsBegin(experts, &round, moved, &segments, &count) == rewireSuccess);
    do {
      for (uint32_t i = 0; i < count; ++i) {
        Compute(device, stream, segments[i], memory);
        if (segments[i].weights != nullptr) *moved_rows += segments[i].rows;
      }
      REQUIRE(rewireExpertsNext(experts, &segments, &count) == rewireSuccess);
    } while (count > 0);
    const rewireGradient_t* gradients = nullptr;
    REQUIRE(rewireExpertsCollect(experts, &gradients, &count) == rewireSuccess);
    device.Wait(stream);
    REQUIRE(rewireExpertsCheck(experts) == rewireSuccess);
    REQUIRE(count == 0 || backward);
    uint32_t row = 0;
    for (uint32_t e = 0; e < kOwn; ++e) {
      for (uint32_t end = row + kRows[rank][e]; row < end; ++row) {
        for (uint32_t i = row * kRow; i < (row + 1) * kRow; ++i) {
          REQUIRE(out[i] == static_cast<char>(x[i] * (backward ? 2 : 1) + 1 + rank * kOwn + e));
        }
      }
    }
    if (!backward) REQUIRE(rewireExpertsMoved(experts, &moved) == rewireSuccess);
    if (backward) REQUIRE(rewireMovedFree(moved) == rewireSuccess);
  }
  rewireExpertsCounts_t counts{};
  counts.size = sizeof counts;
  REQUIRE(rewireExpertsCounts(experts, &counts) == rewireSuccess);
  REQUIRE(counts.rounds == 2);
  const rewireSegment_t* segments = nullptr;
  uint32_t count = 0;
  REQUIRE(rewireExpertsNext(experts, &segments, &count) == rewireInvalidUsage);
  REQUIRE(rewireExpertsEnd(experts) == rewireSuccess);
  return 0;
}

TEST(ExpertsTest, HelpersComputeRowsAndReturnResults) {
  ::setenv("REWIRE_CUDA_LIBRARY", REWIRE_SIMGPU "/libcuda.so.1", 1);
  const std::string name = "c-api-" + std::to_string(::getpid());
  Crew crew(2, 2 * sizeof(uint32_t));
  auto* const moved = reinterpret_cast<uint32_t*>(crew.memory());
  ASSERT_THAT(crew.Run([&](uint32_t rank) { return Rank(name, rank, &moved[rank]); }, seconds(60)),
              Each(0));
  // Rank 0 has 120 of the 136 rows. It moves 52 rows to rank 1 in the forward round, and the same
  // rows in the backward round.
  EXPECT_EQ(moved[0], 0u);
  EXPECT_EQ(moved[1], 104u);
}

TEST(ExpertsTest, ErrorsNameTheArgument) {
  rewireExpertsOptions_t o = Options("x", 0);
  rewireExperts_t experts = nullptr;
  EXPECT_EQ(rewireExpertsOpen(nullptr, &experts), rewireInvalidArgument);
  EXPECT_EQ(rewireExpertsOpen(&o, nullptr), rewireInvalidArgument);
  EXPECT_THAT(rewireMoeLastError(), HasSubstr("experts is NULL"));
  o.size = 8;
  EXPECT_EQ(rewireExpertsOpen(&o, &experts), rewireInvalidArgument);
  EXPECT_THAT(rewireMoeLastError(), HasSubstr("sizeof(rewireExpertsOptions_t)"));
  EXPECT_EQ(rewireExpertsNext(nullptr, nullptr, nullptr), rewireInvalidArgument);
  EXPECT_EQ(rewireExpertsEnd(nullptr), rewireInvalidArgument);
}

}  // namespace
}  // namespace rewire::bench
