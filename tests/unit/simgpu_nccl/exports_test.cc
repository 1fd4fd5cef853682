// The library's exports, and the interposition of NCCL's own calls of its exports.

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "tests/simgpu/nccl/api_device.h"
#include "tests/unit/simgpu_nccl/world.h"

namespace {
std::atomic<int> broadcasts{0};
std::atomic<void*> last_handle{nullptr};
}  // namespace

// This program's definition precedes the library's, like a preloaded shim's.
extern "C" __attribute__((visibility("default"))) ncclResult_t ncclBroadcast(
    const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
    cudaStream_t stream) {
  ++broadcasts;
  last_handle = comm;
  return pncclBroadcast(send, recv, count, type, root, comm, stream);
}

namespace simnccl {
namespace {

TEST(Exports, WeakAndStrongNamesAreOneFunction) {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(nullptr, library) << "not loaded under its SONAME";
  int count = 0;
#define SIMNCCL_LOOK(result, name, parameters)                                         \
  EXPECT_NE(nullptr, ::dlsym(library, "nccl" #name)) << #name;                         \
  EXPECT_EQ(::dlsym(library, "nccl" #name), ::dlsym(library, "pnccl" #name)) << #name; \
  ++count;
  SIMNCCL_EACH_FUNCTION(SIMNCCL_LOOK)
  SIMNCCL_EACH_DEVICE_FUNCTION(SIMNCCL_LOOK)
#undef SIMNCCL_LOOK
  EXPECT_EQ(52, count);
  ::dlclose(library);
}

TEST(Exports, BcastCallsTheInterposedBroadcast) {
  OnRanks(1, [](int, ncclComm_t comm, Rank& gpu) {
    broadcasts = 0;
    int* data = gpu.Put<int>({1});
    ASSERT_NCCL(ncclBcast(data, 1, ncclInt32, 0, comm, gpu.stream()));
    EXPECT_EQ(1, broadcasts);
    EXPECT_EQ(comm, last_handle);
    ASSERT_TRUE(gpu.Sync());
  });
}

TEST(Exports, RefusesDeviceCommunicatorsAndAnswersHostQuestions) {
  OnRanks(1, [](int, ncclComm_t comm, Rank&) {
    EXPECT_EQ(ncclInvalidUsage, ncclDevCommCreate(comm, nullptr, nullptr));
    EXPECT_NE(nullptr, std::strstr(ncclGetLastError(nullptr), "ncclDevCommCreate"));
    EXPECT_EQ(1, ncclTeamWorld(comm).nRanks);
    EXPECT_EQ(6, ncclLLA2ACalcSlots(3, 9));
  });
}

}  // namespace
}  // namespace simnccl
