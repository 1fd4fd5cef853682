// Device memory is sent over the sockets, through host memory, when no rail is left. The transfer
// works while a kernel waits for it, whatever the rails do, and has a time limit.
#include "net_plugin/verbs/staging.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "reconfig/base/cuda_driver.h"
#include "tests/unit/net_plugin/verbs/pair.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 600'000;

const CudaDriver& Driver() {
  std::string error;
  const CudaDriver* const driver = CudaDriver::Get(&error);
  EXPECT_NE(driver, nullptr) << error;
  return *driver;
}

// A buffer on the first device or on the host.
struct Buffer {
  Buffer(int its_type, char fill) : type(its_type) {
    if (type == kPtrHost) {
      host.assign(kBytes, 0);
      data = host.data();
    } else {
      EXPECT_EQ(Driver().MemAlloc(&device, kBytes), CUDA_SUCCESS);
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
      data = reinterpret_cast<char*>(device);
    }
    std::vector<char> bytes(kBytes);
    for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(fill + i * 7 + i / 256);
    Set(bytes);
  }
  ~Buffer() {
    if (device != 0) Driver().MemFree(device);
  }
  Buffer(const Buffer&) = delete;
  void Set(const std::vector<char>& bytes) const {
    if (type == kPtrHost) {
      std::memcpy(data, bytes.data(), kBytes);
    } else {
      EXPECT_EQ(Driver().MemcpyHtoD(device, bytes.data(), kBytes), CUDA_SUCCESS);
    }
  }
  [[nodiscard]] std::vector<char> Get() const {
    if (type == kPtrHost) return host;
    std::vector<char> bytes(kBytes);
    EXPECT_EQ(Driver().MemcpyDtoH(bytes.data(), device, kBytes), CUDA_SUCCESS);
    return bytes;
  }
  const int type;
  std::vector<char> host;
  CUdeviceptr device = 0;
  char* data = nullptr;
};

class DeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Driver().Init(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(Driver().DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(Driver().CtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_TRUE(Staging::Possible());
  }
  void Join(const PairOptions& options) {
    pair_ = std::make_unique<Pair>(options);
    const absl::Status joined = pair_->Join();
    ASSERT_TRUE(joined.ok()) << joined;
  }
  void SetAll(bool up) {
    for (const std::string& device : pair_->devices()) pair_->fabric.SetLinkUp(device, up);
  }
  absl::Status Carry(const Buffer& out, const Buffer& in) {
    void* const from = *pair_->sender->Register(out.data, kBytes, out.type);
    void* to = *pair_->receiver->Register(in.data, kBytes, in.type);
    const absl::Status status = pair_->Carry(out.data, from, in.data, to, kBytes, between_);
    EXPECT_TRUE(pair_->sender->Deregister(from).ok());
    EXPECT_TRUE(pair_->receiver->Deregister(to).ok());
    return status;
  }

  std::unique_ptr<Pair> pair_;
  std::function<void()> between_ = [] {};
};

TEST_F(DeviceMemory, IsSentOverSocketsWithoutRails) {
  for (const auto& [from, to] : {std::pair(kPtrCuda, kPtrCuda), std::pair(kPtrCuda, kPtrHost),
                                 std::pair(kPtrHost, kPtrCuda)}) {
    const Buffer out(from, 'o');
    const Buffer in(to, 'i');
    Join({});
    SetAll(false);
    ASSERT_EQ(Carry(out, in), absl::OkStatus());
    EXPECT_EQ(pair_->sending().Up(), 0u);
    EXPECT_TRUE(in.Get() == out.Get());
  }
}

// NCCL's kernel spins until its bytes have arrived.
TEST_F(DeviceMemory, IsSentWhileKernelWaitsForData) {
  using Launch = CUresult (*)(CUstream, void (*)(void*), void*);
  void* const library = dlopen(std::getenv("REWIRE_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  const auto launch = reinterpret_cast<Launch>(dlsym(library, "cuSimLaunchKernel"));
  ASSERT_NE(launch, nullptr);
  const Buffer out(kPtrCuda, 'o');
  const Buffer in(kPtrCuda, 'i');
  std::atomic<bool> arrived{false};
  CUstream stream = nullptr;
  ASSERT_EQ(Driver().StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(launch(
                stream,
                [](void* flag) {
                  while (!static_cast<std::atomic<bool>*>(flag)->load()) {
                  }
                },
                &arrived),
            CUDA_SUCCESS);
  Join({});
  SetAll(false);
  const absl::Status status = Carry(out, in);
  arrived = true;
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(Driver().StreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_TRUE(in.Get() == out.Get());
  Driver().StreamDestroy(stream);
}

TEST_F(DeviceMemory, ArrivesOnceDespiteRailFaults) {
  const Buffer out(kPtrCuda, 'o');
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Buffer in(kPtrCuda, 'i');
    PairOptions options;
    options.seed = seed;
    options.sender_others = seed % 2;
    Join(options);
    sim::SeededRandom random(seed);
    SetAll(false);
    between_ = [&] {
      if (!random.OneIn(2000)) return;
      const auto& devices = pair_->devices();
      pair_->fabric.SetLinkUp(devices[random.Below(devices.size())], random.OneIn(2));
    };
    ASSERT_EQ(Carry(out, in), absl::OkStatus());
    ASSERT_TRUE(in.Get() == out.Get());
    pair_.reset();
  }
}

TEST_F(DeviceMemory, CopyHasDeadline) {
  const Buffer device(kPtrCuda, 'o');
  const Buffer host(kPtrHost, 'i');
  PairOptions options;
  options.uncopied = true;
  Join(options);
  SetAll(false);
  absl::Status status = Carry(device, host);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device memory"));
  Join(options);
  SetAll(false);
  status = Carry(host, device);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("to device memory: timed out"));
}

// Memory that is not a device's gives an error with the driver's reason.
TEST_F(DeviceMemory, RejectsInvalidDeviceAddress) {
  Buffer out(kPtrHost, 'o');
  const Buffer in(kPtrHost, 'i');
  Join({});
  SetAll(false);
  void* const from = *pair_->sender->Register(out.data, kBytes, kPtrCuda);
  void* const to = *pair_->receiver->Register(in.data, kBytes, kPtrHost);
  const absl::Status status = pair_->Carry(out.data, from, in.data, to, kBytes, between_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of device memory: CUDA_ERROR"));
  EXPECT_TRUE(pair_->sender->Deregister(from).ok());
  EXPECT_TRUE(pair_->receiver->Deregister(to).ok());
}

}  // namespace
}  // namespace rewire::net
