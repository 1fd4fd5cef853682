#include "bench/net/nccl_rank.h"

#include <sched.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/net/nccl_library.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

void SetEnvironment(const RankOptions& o) {
  const std::pair<const char*, std::string> variables[] = {
      // Each rank acts as a machine with one device, so traffic takes the network transport.
      {"NCCL_HOSTID", absl::StrCat("bench-", o.rank)},
      {"SIMGPU_DEVICES", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      // The simulated runtime has none of these functions.
      {"NCCL_CUMEM_ENABLE", "0"},
      {"NCCL_CUMEM_HOST_ENABLE", "0"},
      {"NCCL_NVLS_ENABLE", "0"},
      // NCCL fails if the requested transport is missing.
      {"NCCL_NET_PLUGIN", o.plugin ? REWIRE_NET_PLUGIN : "none"},
      {"NCCL_NET", o.plugin ? "rewire" : "Socket"},
  };
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
}

// Binds the process to its part of the processors, as a launcher binds a rank to those beside its
// GPU. Otherwise the placement of a rank's threads changes the times of small operations threefold,
// from one start to the next.
absl::Status BindProcessors(int rank) {
  cpu_set_t all;
  cpu_set_t mine;
  CPU_ZERO(&all);
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return absl::ErrnoToStatus(errno, "affinity");
  const int each = CPU_COUNT(&all) / kRanks;
  int seen = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && each > 0; ++cpu) {
    if (CPU_ISSET(cpu, &all) && seen++ / each == rank) CPU_SET(cpu, &mine);
  }
  if (each == 0 || sched_setaffinity(0, sizeof mine, &mine) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "sched_setaffinity");
}

double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// Returns element i that this rank sends.
uint32_t Element(uint32_t seed, int rank, size_t i) {
  return (static_cast<uint32_t>(i) + seed) * 2654435761U + static_cast<uint32_t>(rank);
}

class Rank {
 public:
  Rank(const RankOptions& options, const Control& control) : o_(options), control_(control) {}

  absl::Status Start() {
    SetEnvironment(o_);
    REWIRE_RETURN_IF_ERROR(BindProcessors(o_.rank));
    REWIRE_ASSIGN_OR_RETURN(nccl_, OpenNccl(o_.folder));
    CUdevice device = 0;
    CUcontext context = nullptr;
    REWIRE_RETURN_IF_ERROR(Cuda("cuInit", nccl_.cuda.Init(0)));
    REWIRE_RETURN_IF_ERROR(Cuda("cuDeviceGet", nccl_.cuda.DeviceGet(&device, 0)));
    REWIRE_RETURN_IF_ERROR(
        Cuda("cuDevicePrimaryCtxRetain", nccl_.cuda.DevicePrimaryCtxRetain(&context, device)));
    REWIRE_RETURN_IF_ERROR(Cuda("cuCtxSetCurrent", nccl_.cuda.CtxSetCurrent(context)));
    REWIRE_RETURN_IF_ERROR(
        Cuda("cuStreamCreate", nccl_.cuda.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING)));
    for (CUdeviceptr* buffer : {&out_, &in_, &start_}) {
      REWIRE_RETURN_IF_ERROR(Cuda("cuMemAlloc", nccl_.cuda.MemAlloc(buffer, o_.most_bytes)));
    }
    ncclUniqueId id{};
    if (o_.rank == 0) {
      REWIRE_RETURN_IF_ERROR(Nccl("ncclGetUniqueId", nccl_.GetUniqueId(&id)));
      control_.Send(&id, sizeof id);
    } else {
      control_.Receive(&id, sizeof id);
    }
    REWIRE_RETURN_IF_ERROR(
        Nccl("ncclCommInitRank", nccl_.CommInitRank(&comm_, kRanks, id, o_.rank)));
    int version = 0;
    REWIRE_RETURN_IF_ERROR(Nccl("ncclGetVersion", nccl_.GetVersion(&version)));
    control_.Send(&version, sizeof version);
    return absl::OkStatus();
  }

  absl::Status Serve() {
    for (;;) {
      RankWork work;
      control_.Receive(&work, sizeof work);
      if (work.kind == RankWork::kEnd) return Nccl("ncclCommDestroy", nccl_.CommDestroy(comm_));
      REWIRE_ASSIGN_OR_RETURN(const RankSample sample, Do(work));
      control_.Send(&sample, sizeof sample);
    }
  }

 private:
  absl::StatusOr<RankSample> Do(const RankWork& work) {
    host_.resize(work.bytes / sizeof(uint32_t));
    for (size_t i = 0; i < host_.size(); ++i) host_[i] = Element(work.seed, o_.rank, i);
    REWIRE_RETURN_IF_ERROR(
        Cuda("cuMemcpyHtoD", nccl_.cuda.MemcpyHtoD(out_, host_.data(), work.bytes)));
    // The first operation connects. Its time and its result do not count.
    REWIRE_RETURN_IF_ERROR(Enqueue(work.kind));
    REWIRE_RETURN_IF_ERROR(Wait());
    REWIRE_RETURN_IF_ERROR(
        Cuda("cuMemsetD8Async", nccl_.cuda.MemsetD8Async(in_, 0, work.bytes, stream_)));
    REWIRE_RETURN_IF_ERROR(Meet());
    const double cpu = CpuSeconds();
    const Time begin = Now();
    for (uint64_t i = 0; i < work.count; ++i) REWIRE_RETURN_IF_ERROR(Enqueue(work.kind));
    REWIRE_RETURN_IF_ERROR(Wait());
    RankSample sample;
    sample.seconds = static_cast<double>(ToNanoseconds(Now() - begin)) / 1e9;
    sample.cpu_seconds = CpuSeconds() - cpu;
    REWIRE_RETURN_IF_ERROR(
        Cuda("cuMemcpyDtoH", nccl_.cuda.MemcpyDtoH(host_.data(), in_, work.bytes)));
    for (size_t i = 0; i < host_.size(); ++i) sample.wrong += host_[i] != Expected(work, i) ? 1 : 0;
    return sample;
  }

  static uint32_t Expected(const RankWork& work, size_t i) {
    const uint32_t first = Element(work.seed, 0, i);
    // A ping-pong sends rank 0's data both ways.
    return work.kind == RankWork::kPingPong ? first : first + Element(work.seed, 1, i);
  }

  // Enqueues one operation on all of host_'s elements.
  absl::Status Enqueue(RankWork::Kind kind) {
    if (kind == RankWork::kAllReduce) return AllReduce(out_, in_, host_.size());
    if (o_.rank == 0) REWIRE_RETURN_IF_ERROR(Send(out_));
    REWIRE_RETURN_IF_ERROR(Nccl("ncclRecv", nccl_.Recv(Pointer(in_), host_.size(), ncclUint32,
                                                       1 - o_.rank, comm_, stream_)));
    return o_.rank == 0 ? absl::OkStatus() : Send(in_);
  }

  absl::Status Send(CUdeviceptr from) {
    return Nccl("ncclSend",
                nccl_.Send(Pointer(from), host_.size(), ncclUint32, 1 - o_.rank, comm_, stream_));
  }

  absl::Status AllReduce(CUdeviceptr from, CUdeviceptr to, size_t count) {
    return Nccl("ncclAllReduce", nccl_.AllReduce(Pointer(from), Pointer(to), count, ncclUint32,
                                                 ncclSum, comm_, stream_));
  }

  // Returns on both ranks after both have called it.
  absl::Status Meet() {
    REWIRE_RETURN_IF_ERROR(AllReduce(start_, start_, 1));
    return Wait();
  }

  static void* Pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }

  absl::Status Wait() {
    REWIRE_RETURN_IF_ERROR(Cuda("cuStreamSynchronize", nccl_.cuda.StreamSynchronize(stream_)));
    ncclResult_t result = ncclSuccess;
    REWIRE_RETURN_IF_ERROR(Nccl("ncclCommGetAsyncError", nccl_.CommGetAsyncError(comm_, &result)));
    return Nccl("the communicator", result);
  }

  absl::Status Cuda(const char* call, CUresult result) const {
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    return absl::InternalError(nccl_.cuda.Describe(call, result));
  }
  absl::Status Nccl(const char* call, ncclResult_t result) const {
    if (result == ncclSuccess) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(call, ": ", nccl_.GetErrorString(result)));
  }

  const RankOptions o_;
  const Control control_;
  NcclLibrary nccl_{};
  ncclComm_t comm_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr out_ = 0;
  CUdeviceptr in_ = 0;
  CUdeviceptr start_ = 0;
  std::vector<uint32_t> host_;
};

}  // namespace

int RunRank(const RankOptions& options, const Control& control) {
  Rank rank(options, control);
  absl::Status status = rank.Start();
  if (status.ok()) status = rank.Serve();
  if (status.ok()) return 0;
  fprintf(stderr, "net_perf: rank %d of 2 over %s: %s\n", options.rank,
          options.plugin ? "the plugin" : "NCCL's sockets", status.ToString().c_str());
  return 1;
}

}  // namespace rewire::bench
