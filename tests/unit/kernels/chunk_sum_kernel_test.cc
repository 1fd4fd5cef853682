// The source of the kernels that add chunks, on the CPU, with the tables that the host makes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "reconfig/moe/fsep/chunk_sum.h"
#include "tests/unit/kernels/cuda_on_host.h"

namespace rewire::moe::fsep {
namespace {

#include "reconfig/moe/fsep/chunk_sum.cu"

constexpr Word kElements = 90;
constexpr uint32_t kChunks = 4;

// Chunks of shards, slots and staging, and two sums that read all three memories. The first sum's
// target is one of its sources.
template <typename Element>
struct Chunks {
  using Memories = std::array<std::vector<Element>, 3>;
  explicit Chunks(float (*to_float)(Element)) : to_float(to_float) {
    for (auto& some : memory) some.resize(kElements * kChunks);
  }
  Element* At(Chunk chunk) {
    return memory[static_cast<size_t>(chunk.memory)].data() + chunk.index * kElements;
  }
  float AddAt(const Sum& sum, Word i) {
    float value = -0.0f;
    for (const Chunk& from : sum.from) value += to_float(At(from)[i]);
    return value;
  }
  char* base(size_t number) { return reinterpret_cast<char*>(memory[number].data()); }

  Memories memory;
  float (*const to_float)(Element);
  const std::vector<Sum> sums = {
      {{Memory::kSlots, 1}, {{Memory::kSlots, 1}, {Memory::kStaging, 3}, {Memory::kShards, 0}}},
      {{Memory::kShards, 2}, {{Memory::kStaging, 0}}}};
};

TEST(ChunkSumKernel, AddsFloat32FromTheFirstSourceToTheLast) {
  Chunks<float> chunks([](float value) { return value; });
  std::mt19937 random(1);
  std::uniform_real_distribution<float> any(-1e6f, 1e6f);
  for (auto& some : chunks.memory) {
    for (float& value : some) value = any(random);
  }
  std::array<std::vector<float>, 2> want;
  for (size_t s = 0; s < 2; ++s) {
    for (Word i = 0; i < kElements; ++i) want[s].push_back(chunks.AddAt(chunks.sums[s], i));
  }
  const std::vector<uint64_t> rows = SumTable(chunks.sums, kElements * sizeof(float));
  const std::vector<Word> table(rows.begin(), rows.end());
  LaunchOnHost({2, 1}, 16, [&] {
    rewire_sum_f32(table.data(), 2, kElements, chunks.base(0), chunks.base(1), chunks.base(2));
  });
  for (size_t s = 0; s < 2; ++s) {
    for (Word i = 0; i < kElements; ++i) ASSERT_EQ(chunks.At(chunks.sums[s].to)[i], want[s][i]);
  }
}

TEST(ChunkSumKernel, RoundsTheSumOfBfloat16Once) {
  Chunks<unsigned short> chunks([](unsigned short value) { return Bfloat16::Load(&value); });
  std::mt19937 random(2);
  for (auto& some : chunks.memory) {
    for (unsigned short& value : some) value = static_cast<unsigned short>(0x3f00 + random() % 512);
  }
  std::array<std::vector<unsigned short>, 2> want;
  for (size_t s = 0; s < 2; ++s) {
    for (Word i = 0; i < kElements; ++i) {
      Bfloat16::Store(&want[s].emplace_back(), chunks.AddAt(chunks.sums[s], i));
    }
  }
  const std::vector<uint64_t> rows = SumTable(chunks.sums, kElements * sizeof(unsigned short));
  const std::vector<Word> table(rows.begin(), rows.end());
  LaunchOnHost({1, 3}, 8, [&] {
    rewire_sum_bf16(table.data(), 2, kElements, chunks.base(0), chunks.base(1), chunks.base(2));
  });
  for (size_t s = 0; s < 2; ++s) {
    for (Word i = 0; i < kElements; ++i) ASSERT_EQ(chunks.At(chunks.sums[s].to)[i], want[s][i]);
  }
}

TEST(ChunkSumKernel, RoundsToNearestEvenAndKeepsNan) {
  const auto rounded = [](float value) {
    unsigned short bits = 0;
    Bfloat16::Store(&bits, value);
    return Bfloat16::Load(&bits);
  };
  EXPECT_EQ(rounded(1.0f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1p-8f), 1.0f);                    // a tie goes to even
  EXPECT_EQ(rounded(1.0f + 3 * 0x1p-8f), 1.0f + 4 * 0x1p-8f);  // the same, upwards
  EXPECT_EQ(rounded(1.0f + 0x1.01p-8f), 1.0f + 0x1p-7f);       // above the tie
  EXPECT_TRUE(std::isinf(rounded(0x1.ffp127f)));
  EXPECT_TRUE(std::isnan(rounded(__uint_as_float(0x7f800001))));  // NaN in the low bits alone
  EXPECT_EQ(__float_as_uint(rounded(-0.0f)), 0x80000000);
}

}  // namespace
}  // namespace rewire::moe::fsep
