#include "tests/unit/simgpu_nccl/world.h"

#include <dlfcn.h>

#include <filesystem>

namespace simnccl {

const TestDriver& TestDriver::Get() {
  static const TestDriver driver = [] {
    TestDriver t;
    if (Driver::Get(&t.d) != ncclSuccess) {
      ADD_FAILURE() << "no simulated driver";
      std::abort();
    }
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](const char* name, auto* target) {
      *target = reinterpret_cast<std::remove_pointer_t<decltype(target)>>(::dlsym(library, name));
      if (*target == nullptr) std::abort();
    };
    find("cuStreamCreate", &t.StreamCreate);
    find("cuStreamDestroy_v2", &t.StreamDestroy);
    find("cuStreamSynchronize", &t.StreamSynchronize);
    find("cuStreamQuery", &t.StreamQuery);
    find("cuMemGetInfo_v2", &t.MemGetInfo);
    return t;
  }();
  return driver;
}

Rank::Rank(int device) : device_(device) {
  const TestDriver& t = TestDriver::Get();
  EXPECT_EQ(0, t.d->DevicePrimaryCtxRetain(&context_, device));
  EXPECT_EQ(0, t.d->CtxSetCurrent(context_));
  EXPECT_EQ(0, t.StreamCreate(&stream_, 1));
}

Rank::~Rank() {
  const TestDriver& t = TestDriver::Get();
  EXPECT_EQ(0, t.d->CtxSetCurrent(context_));
  EXPECT_EQ(0, t.StreamDestroy(stream_));
  for (void* memory : memory_) {
    EXPECT_EQ(0, t.d->MemFree(reinterpret_cast<uint64_t>(memory)));
  }
  EXPECT_EQ(0, t.d->CtxSetCurrent(nullptr));
  EXPECT_EQ(0, t.d->DevicePrimaryCtxRelease(device_));
}

void* Rank::Alloc(size_t bytes) {
  uint64_t pointer = 0;
  const ContextScope scope(TestDriver::Get().d, context_);
  EXPECT_EQ(0, TestDriver::Get().d->MemAlloc(&pointer, std::max<size_t>(bytes, 16)));
  memory_.push_back(reinterpret_cast<void*>(pointer));
  return memory_.back();
}

bool Rank::SyncStream(cudaStream_t stream) {
  return Eventually([&] { return TestDriver::Get().StreamQuery(stream) == 0; });
}

bool Eventually(const std::function<bool()>& condition) {
  // For a deadlock alone: an emulated machine beside other work is a hundred times slower.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void OnThreads(int n, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

void OnRanks(int n, const std::function<void(int, ncclComm_t, Rank&)>& body,
             const ncclConfig_t* config) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  OnThreads(n, [&](int r) {
    Rank gpu(r);
    ncclConfig_t copy = NCCL_CONFIG_INITIALIZER;
    if (config != nullptr) copy = *config;
    ncclComm_t comm = nullptr;
    ncclResult_t state = ncclCommInitRankConfig(&comm, n, id, r, &copy);
    ASSERT_TRUE(state == ncclSuccess || state == ncclInProgress) << ncclGetLastError(nullptr);
    ASSERT_TRUE(Eventually([&] {
      return ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclInProgress;
    }));
    ASSERT_EQ(ncclSuccess, state) << ncclGetLastError(nullptr);
    body(r, comm, gpu);
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

int CountFds() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

int CountThreads() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    (void)entry;
    ++count;
  }
  return count;
}

}  // namespace simnccl
