#include "bench/moe-exec/sim_device.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "reconfig/base/hash.h"

namespace rewire::bench {
namespace {

[[noreturn]] void Die(const std::string& why) {
  fprintf(stderr, "moe-exec: %s\n", why.c_str());
  exit(1);
}

template <typename Function>
void Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  if (*function == nullptr) Die(std::string(name) + " is missing");
}

void* Load(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Die(::dlerror());
  return library;
}

void Check(const char* call, ncclResult_t result) {
  if (result != ncclSuccess) Die(std::string(call) + ": " + std::to_string(result));
}

void* Pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }

}  // namespace

#define CHECK_CU(call) \
  if (const CUresult checked = (call); checked != CUDA_SUCCESS) Die(cuda_.Describe(#call, checked))

SimDevice::SimDevice(const std::string& folder, int ordinal) {
  const std::string path = folder + "/libcuda.so.1";
  if (const std::string error = CudaDriver::Load(path, &cuda_); !error.empty()) Die(error);
  void* const cuda = Load(path);
  Resolve(cuda, "cuSimLaunchTimedKernel", &launch_);
  Resolve(cuda, "cuSimAdvanceClock", &advance_);
  Resolve(cuda, "cuSimGetCounts", &counts_);
  void* const nccl = Load(folder + "/libnccl.so.2");
  Resolve(nccl, "ncclGetUniqueId", &get_id_);
  Resolve(nccl, "ncclCommInitRank", &init_);
  Resolve(nccl, "ncclCommDestroy", &destroy_);
  Resolve(nccl, "ncclGroupStart", &group_start_);
  Resolve(nccl, "ncclGroupEnd", &group_end_);
  Resolve(nccl, "ncclSend", &send_);
  Resolve(nccl, "ncclRecv", &receive_);
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK_CU(cuda_.Init(0));
  CHECK_CU(cuda_.DeviceGet(&device, ordinal));
  CHECK_CU(cuda_.DevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuda_.CtxSetCurrent(context));
}

CUdeviceptr SimDevice::Allocate(size_t bytes) const {
  CUdeviceptr memory = 0;
  CHECK_CU(cuda_.MemAlloc(&memory, bytes == 0 ? 1 : bytes));
  return memory;
}

CUstream SimDevice::MakeStream() const {
  CUstream stream = nullptr;
  CHECK_CU(cuda_.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void SimDevice::Wait(CUstream stream) const { CHECK_CU(cuda_.StreamSynchronize(stream)); }

void SimDevice::Launch(CUstream stream, uint64_t nanoseconds, std::function<void()> kernel) const {
  using Kernel = std::function<void()>;
  const auto run = [](void* argument) {
    (*std::unique_ptr<Kernel>(static_cast<Kernel*>(argument)))();
  };
  CHECK_CU(launch_(stream, run, new Kernel(std::move(kernel)), nanoseconds));
}

uint64_t SimDevice::Clock(CUstream stream, uint64_t at_least) const {
  uint64_t now = 0;
  CHECK_CU(advance_(stream, at_least, &now));
  return now;
}

cuSimCounts SimDevice::Counts() const {
  cuSimCounts counts{};
  CHECK_CU(counts_(&counts));
  return counts;
}

ncclUniqueId SimDevice::MakeId() const {
  ncclUniqueId id{};
  Check("ncclGetUniqueId", get_id_(&id));
  return id;
}

void SimDevice::Join(const ncclUniqueId& id, int ranks, int rank) {
  Check("ncclCommInitRank", init_(&comm_, ranks, id, rank));
}

void SimDevice::AllToAll(CUstream stream, CUdeviceptr from, const std::vector<size_t>& sends,
                         CUdeviceptr to, const std::vector<size_t>& receives) {
  Check("ncclGroupStart", group_start_());
  for (size_t rank = 0; rank < sends.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (sends[rank] > 0) {
      Check("ncclSend", send_(Pointer(from), sends[rank], ncclFloat32, peer, comm_, stream));
    }
    if (receives[rank] > 0) {
      Check("ncclRecv", receive_(Pointer(to), receives[rank], ncclFloat32, peer, comm_, stream));
    }
    from += sends[rank] * sizeof(float);
    to += receives[rank] * sizeof(float);
    nccl_trace_ = MixWord(nccl_trace_, sends[rank]);
    nccl_trace_ = MixWord(nccl_trace_, receives[rank]);
  }
  Check("ncclGroupEnd", group_end_());
}

void SimDevice::Leave() {
  Check("ncclCommDestroy", destroy_(comm_));
  comm_ = nullptr;
}

}  // namespace rewire::bench
