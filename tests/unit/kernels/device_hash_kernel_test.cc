// The source of the kernel that hashes device memory, on the CPU.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "reconfig/state/stream/content.h"
#include "tests/unit/kernels/cuda_on_host.h"

namespace rewire::state {
namespace {

#include "reconfig/state/stream/device_hash.cu"

TEST(DeviceHashKernel, AddsTheHashOfContentAtEveryAlignmentAndLength) {
  std::mt19937_64 random(1);
  std::vector<unsigned char> data(5000);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (const size_t bytes : {0, 1, 5, 7, 8, 9, 63, 1000, 4096, 4900}) {
      Word sum = 3;
      LaunchOnHost({3}, 32, [&] { rewire_content_hash(data.data() + begin, bytes, 17, &sum); });
      ASSERT_EQ(sum, 3 + HashContent(data.data() + begin, bytes, uint64_t{17} * 8))
          << "begin " << begin << ", bytes " << bytes;
    }
  }
}

}  // namespace
}  // namespace rewire::state
