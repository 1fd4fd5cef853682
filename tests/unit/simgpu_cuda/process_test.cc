// Behaviour that needs a second process: shared memory, settings, fork, exit.
#include <signal.h>

#include <string>

#include "tests/unit/simgpu_cuda/child_process.h"
#include "tests/unit/simgpu_cuda/device_test.h"
#include "tests/unit/simgpu_cuda/handle_text.h"

namespace simgpu_test {
namespace {

class ProcessTest : public DeviceTest {};

TEST_F(ProcessTest, MemoryIsSharedByHandle) {
  for (const size_t size : {size_t{100}, size_t{5} << 20}) {
    const CUdeviceptr padding = NewMemory(700);  // so that the memory begins inside a page
    const CUdeviceptr memory = NewMemory(size);
    ASSERT_EQ(cuMemcpyHtoD_v2(memory, "hello", 6), CUDA_SUCCESS);
    CUipcMemHandle handle{};
    ASSERT_EQ(cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
    EXPECT_EQ(Child({"import", ToText(handle)}).Wait(), 0);
    char seen[6] = {};
    ASSERT_EQ(cuMemcpyDtoH_v2(seen, memory, 6), CUDA_SUCCESS);
    EXPECT_STREQ(seen, "world");
    EXPECT_EQ(cuMemFree_v2(padding), CUDA_SUCCESS);
  }
}

TEST_F(ProcessTest, HandlesThatMeanNothingAreRefused) {
  const CUdeviceptr memory = NewMemory(100);
  CUipcMemHandle handle{};
  ASSERT_EQ(cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
  CUipcMemHandle forged = handle;
  forged.reserved[24] ^= 1;  // the cookie
  EXPECT_EQ(Child({"import", ToText(forged)}).Wait(), CUDA_ERROR_MAP_FAILED);
  EXPECT_EQ(Child({"import", ToText(CUipcMemHandle{})}).Wait(), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(Child({"import", ToText(handle)}).Wait(), CUDA_ERROR_MAP_FAILED);  // freed
  CUdeviceptr opened = 0;
  // A process cannot open its own handle.
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&opened, handle, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&opened, handle, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcGetMemHandle(&handle, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcCloseMemHandle(4096), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ProcessTest, MemoryOutlivesItsKilledOwnerWhereItIsOpen) {
  Child owner({"export"});
  const CUipcMemHandle handle = FromText(owner.ReadLine());
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuIpcOpenMemHandle_v2(&memory, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoD_v2(memory, "still", 6), CUDA_SUCCESS);
  owner.Kill();
  EXPECT_EQ(owner.Wait(), 1000 + SIGKILL);
  char seen[6] = {};
  ASSERT_EQ(cuMemcpyDtoH_v2(seen, memory, 6), CUDA_SUCCESS);
  EXPECT_STREQ(seen, "still");
  ASSERT_EQ(cuIpcCloseMemHandle(memory), CUDA_SUCCESS);
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&memory, handle, 0), CUDA_ERROR_MAP_FAILED);
}

TEST_F(ProcessTest, WrongSettingsFailInitAndAreNamed) {
  for (const char* setting :
       {"SIMGPU_DEVICES=0", "SIMGPU_DEVICES=two", "SIMGPU_MEMORY_MB=12 ", "SIMGPU_KERNEL_SLOTS=-1",
        "SIMGPU_ALLOC_SYNC=yes", "SIMGPU_X=1", "SIMGPU_MEMORY_MB="}) {
    Child child({"start"}, {setting});
    EXPECT_NE(child.ReadLine().find(setting == std::string("SIMGPU_X=1") ? "SIMGPU_X" : setting),
              std::string::npos)
        << setting;
    EXPECT_EQ(child.Wait(), CUDA_ERROR_INVALID_VALUE) << setting;
  }
  EXPECT_EQ(Child({"start"}, {"SIMGPU_DEVICES=64", "SIMGPU_MEMORY_MB=1"}).Wait(), 0);
}

TEST_F(ProcessTest, AllocationsWaitForKernelsWhereAskedTo) {
  Child free({"allocate"});
  EXPECT_EQ(free.ReadLine(), "overtakes");
  EXPECT_EQ(free.Wait(), 0);
  Child serial({"allocate"}, {"SIMGPU_ALLOC_SYNC=1"});
  EXPECT_EQ(serial.ReadLine(), "waits");
  EXPECT_EQ(serial.Wait(), 0);
}

TEST_F(ProcessTest, AForkedChildIsRefusedEverything) { EXPECT_EQ(Child({"fork"}).Wait(), 0); }

TEST_F(ProcessTest, ExitWithStreamsAlive) { EXPECT_EQ(Child({"exit"}).Wait(), 0); }

TEST_F(ProcessTest, NothingWorksBeforeInit) { EXPECT_EQ(Child({"before_init"}).Wait(), 0); }

}  // namespace
}  // namespace simgpu_test
