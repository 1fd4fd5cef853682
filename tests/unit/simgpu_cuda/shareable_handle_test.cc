// Physical memory as a file descriptor, within one process and between two.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/simgpu_cuda/child_process.h"
#include "tests/unit/simgpu_cuda/descriptor.h"
#include "tests/unit/simgpu_cuda/virtual_memory.h"

namespace simgpu_test {
namespace {

class ShareableHandleTest : public VirtualMemoryTest {
 protected:
  static int Export(CUmemGenericAllocationHandle handle) {
    int fd = -1;
    EXPECT_EQ(cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0), CUDA_SUCCESS);
    return fd;
  }
  static CUresult Import(CUmemGenericAllocationHandle* handle, int fd) {
    return cuMemImportFromShareableHandle(handle, reinterpret_cast<void*>(intptr_t{fd}),
                                          kDescriptor);
  }
  static CUdeviceptr MapReleased(CUmemGenericAllocationHandle handle) {
    const CUdeviceptr range = NewRange(kPage);
    EXPECT_EQ(cuMemMap(range, kPage, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(Grant(range, kPage), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    return range;
  }
};

TEST_F(ShareableHandleTest, RejectsExportOfTypeNotRequested) {
  int fd = -1;
  const CUmemGenericAllocationHandle own = NewPhysical(kPage);
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, own, kDescriptor, 0), CUDA_ERROR_INVALID_VALUE);
  const CUmemGenericAllocationHandle shared = NewPhysical(kPage, kDescriptor);
  for (const auto type : {CU_MEM_HANDLE_TYPE_FABRIC, CU_MEM_HANDLE_TYPE_WIN32}) {
    CUmemGenericAllocationHandle imported = 0;
    EXPECT_EQ(cuMemExportToShareableHandle(&fd, shared, type, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuMemImportFromShareableHandle(&imported, nullptr, type), CUDA_ERROR_NOT_SUPPORTED);
  }
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, shared, kDescriptor, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemExportToShareableHandle(nullptr, shared, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, shared + 1, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease(own), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(shared), CUDA_SUCCESS);
}

TEST_F(ShareableHandleTest, OtherDescriptorsAreRefused) {
  CUmemGenericAllocationHandle imported = 0;
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  for (const int fd : {-1, pipe[0], file})
    EXPECT_EQ(Import(&imported, fd), CUDA_ERROR_INVALID_VALUE);
  for (const int fd : {pipe[0], pipe[1], file}) ::close(fd);
}

TEST_F(ShareableHandleTest, CountsMemoryWhileDescriptorOrImportExists) {
  const CUmemGenericAllocationHandle handle = NewPhysical(kPage, kDescriptor);
  const int fd = Export(handle), again = Export(handle);
  const CUdeviceptr range = MapReleased(handle);
  ASSERT_EQ(cuMemcpyHtoD_v2(range, "hello", 6), CUDA_SUCCESS);
  UnmapAndFree(range, kPage);
  EXPECT_EQ(Used(), kPage);  // the descriptors hold the memory
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(Import(&imported, fd), CUDA_SUCCESS);
  ::close(fd);
  ::close(again);
  EXPECT_EQ(Used(), kPage);  // counted once
  CUmemAllocationProp properties{};
  ASSERT_EQ(cuMemGetAllocationPropertiesFromHandle(&properties, imported), CUDA_SUCCESS);
  EXPECT_EQ(properties.requestedHandleTypes, kDescriptor);
  const CUdeviceptr other = MapReleased(imported);
  char seen[6] = {};
  ASSERT_EQ(cuMemcpyDtoH_v2(seen, other, 6), CUDA_SUCCESS);
  EXPECT_STREQ(seen, "hello");
  EXPECT_EQ(Used(), kPage);
  UnmapAndFree(other, kPage);
  EXPECT_EQ(Used(), 0u);
}

TEST_F(ShareableHandleTest, ClosingLastDescriptorFreesMemory) {
  const CUmemGenericAllocationHandle handle = NewPhysical(32 * kPage, kDescriptor);
  const int fd = Export(handle);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY);
  ::close(fd);
  EXPECT_EQ(cuMemFree_v2(NewMemory(1)), CUDA_SUCCESS);
}

TEST_F(ShareableHandleTest, OutlivesTheProcessThatExportedIt) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  EXPECT_EQ(Child({"share"}, {}, sockets[1]).Wait(), 0);
  ::close(sockets[1]);
  const int fd = ReceiveDescriptor(sockets[0]);
  ::close(sockets[0]);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Import(&handle, fd), CUDA_SUCCESS);
  ::close(fd);
  const CUdeviceptr range = MapReleased(handle);
  char seen[6] = {};
  ASSERT_EQ(cuMemcpyDtoH_v2(seen, range, 6), CUDA_SUCCESS);
  EXPECT_STREQ(seen, "hello");
  UnmapAndFree(range, kPage);
}

TEST_F(ShareableHandleTest, CountsUntilTheProcessThatImportedItIsGone) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  Child importer({"attach"}, {}, sockets[1]);
  ::close(sockets[1]);
  const CUmemGenericAllocationHandle handle = NewPhysical(kPage, kDescriptor);
  const int fd = Export(handle);
  const CUdeviceptr range = MapReleased(handle);
  ASSERT_EQ(cuMemcpyHtoD_v2(range, "hello", 6), CUDA_SUCCESS);
  ASSERT_TRUE(SendDescriptor(sockets[0], fd));
  ::close(fd);
  ::close(sockets[0]);
  ASSERT_EQ(importer.ReadLine(), "attached");
  char seen[6] = {};
  ASSERT_EQ(cuMemcpyDtoH_v2(seen, range, 6), CUDA_SUCCESS);
  EXPECT_STREQ(seen, "world");
  UnmapAndFree(range, kPage);
  EXPECT_EQ(Used(), kPage);
  importer.Kill();
  EXPECT_EQ(importer.Wait(), 1000 + SIGKILL);
  EXPECT_EQ(Used(), 0u);
}

TEST_F(ShareableHandleTest, AnotherDevicesMemoryNeedsThatDevice) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const CUmemAllocationProp properties = Properties(kDescriptor, 1);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kPage, &properties, 0), CUDA_SUCCESS);
  const int fd = Export(handle);
  ASSERT_TRUE(SendDescriptor(sockets[0], fd));
  ::close(fd);
  EXPECT_EQ(Child({"attach"}, {"SIMGPU_DEVICES=1"}, sockets[1]).Wait(),
            CUDA_ERROR_NOT_SUPPORTED % 256);  // as an exit status has it
  ::close(sockets[0]);
  ::close(sockets[1]);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simgpu_test
