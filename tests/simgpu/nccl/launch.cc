#include "tests/simgpu/nccl/launch.h"

#include <memory>

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/runtime.h"
#include "tests/simgpu/nccl/tuner.h"

namespace simnccl {
namespace {

// Up to this size every rank gets all inputs. This takes half the ring's hops, which dominate the
// cost of small inputs.
constexpr size_t kLlBytes = 16 << 10;
constexpr int kLlRanks = 16;

struct Kernel {
  Plan plan;
  std::shared_ptr<Abort> abort;
  Progress* progress;
  std::shared_ptr<UnderWay> launched;
};

// The work of the kernel slot: waits, without using the CPU, until the progress thread has finished
// the plan or the communicator is aborted. The communicator waits for this kernel before it is
// freed.
void RunKernel(void* argument) {
  std::unique_ptr<Kernel> kernel(static_cast<Kernel*>(argument));
  if (!kernel->abort->IsSet()) {
    kernel->plan.RunLocal();
    if (kernel->plan.NeedsNetwork()) kernel->progress->Execute(&kernel->plan);
  }
  const std::shared_ptr<UnderWay> launched = kernel->launched;
  kernel.reset();
  launched->Remove();
}

// Returns the bytes of the whole data, the size that tuners use for a collective.
size_t TotalBytes(const ncclComm* comm, const CollectiveTask& task) {
  const bool scattered =
      task.function == Function::kAllGather || task.function == Function::kReduceScatter;
  return task.count * task.element() * (scattered ? comm->nranks : 1);
}

}  // namespace

ncclResult_t Prepare(ncclComm* comm, CommWork* work) {
  const RuntimeUse use;
  for (CollectiveTask& task : work->collectives) {
    const size_t bytes = TotalBytes(comm, task);
    task.protocol = task.function == Function::kAllReduce && bytes <= kLlBytes ? Protocol::kLl
                                                                               : Protocol::kSimple;
    if (comm->tuner != nullptr) {
      SIMNCCL_TRY(comm->tuner->Choose(task.function, bytes, 1, &task.protocol));
    }
    // The gathering protocol supports only small AllReduces; one message must fit into a slot.
    const size_t slot = comm->buffer_bytes / kSlots;
    if (task.function != Function::kAllReduce || comm->nranks > kLlRanks ||
        bytes > std::min(kLlBytes, slot)) {
      task.protocol = Protocol::kSimple;
    }
  }
  return ncclSuccess;
}

PeerSet PeersOf(const CommWork& work) {
  PeerSet peers;
  // A message of 0 bytes connects also.
  for (const PeerTask& task : work.peers) peers.emplace(task.sending, task.peer);
  return peers;
}

bool NeedsConnect(const ncclComm* comm, const CommWork& work) {
  return (!work.collectives.empty() && !RingConnected(comm)) ||
         !PeersConnected(comm, PeersOf(work));
}

ncclResult_t Connect(ncclComm* comm, const CommWork& work, bool peers) {
  if (!work.collectives.empty()) SIMNCCL_TRY(ConnectRing(comm));
  return peers ? ConnectPeers(comm, PeersOf(work)) : ncclSuccess;
}

ncclResult_t Launch(ncclComm* comm, const CommWork& work) {
  if (work.collectives.empty() && work.peers.empty()) return ncclSuccess;
  std::vector<cudaStream_t> streams;
  const auto use = [&](cudaStream_t stream) {
    for (const cudaStream_t seen : streams) {
      if (seen == stream) return;
    }
    streams.push_back(stream);
  };
  auto kernel = std::make_unique<Kernel>(
      Kernel{Plan(comm->rank, comm->nranks), comm->abort, comm->progress.get(), comm->launched});
  for (const CollectiveTask& task : work.collectives) {
    kernel->plan.Add(task);
    use(task.stream);
  }
  for (const PeerTask& task : work.peers) {
    kernel->plan.Add(task);
    use(task.stream);
  }
  SIMNCCL_TRY(kernel->plan.PairSelf());

  const Driver* d = comm->driver;
  ContextScope scope(d, comm->context);
  size_t capturing = 0;
  for (const cudaStream_t stream : streams) {
    int status = 0;
    SIMNCCL_CU(d->StreamIsCapturing(stream, &status));
    capturing += status != 0 ? 1 : 0;
  }
  if (capturing != 0 && capturing != streams.size()) {
    return Fail(ncclInvalidUsage, "only some streams of the group are in a capture");
  }
  // The simulated driver launches no graphs, so a captured operation never runs.
  if (capturing != 0) return ncclSuccess;
  const cudaStream_t stream = streams[0];
  // The other streams of the group wait for the kernel, and the kernel waits for their earlier
  // work.
  for (size_t i = 1; i < streams.size(); ++i) {
    CuEvent event = nullptr;
    SIMNCCL_CU(d->EventCreate(&event, 2 /* without timing */));
    SIMNCCL_CU(d->EventRecord(event, streams[i]));
    SIMNCCL_CU(d->StreamWaitEvent(stream, event, 0));
    SIMNCCL_CU(d->EventDestroy(event));
  }
  // All operations of one communicator run in the order of their launches.
  if (comm->launched_before && comm->last_stream != stream) {
    SIMNCCL_CU(d->StreamWaitEvent(stream, comm->last_event, 0));
  }
  comm->launched->Add();
  const ncclResult_t launched =
      CheckCuda(d->SimLaunchKernel(stream, RunKernel, kernel.get()), "cuSimLaunchKernel");
  if (launched != ncclSuccess) {
    comm->launched->Remove();
    return launched;
  }
  (void)kernel.release();
  SIMNCCL_CU(d->EventRecord(comm->last_event, stream));
  comm->last_stream = stream;
  comm->launched_before = true;
  for (size_t i = 1; i < streams.size(); ++i) {
    SIMNCCL_CU(d->StreamWaitEvent(streams[i], comm->last_event, 0));
  }
  return ncclSuccess;
}

float Estimate(const ncclComm* comm, const CommWork& work) {
  // A rough estimate: a hop costs some 20 us and a core copies some GB/s.
  float us = 0;
  for (const CollectiveTask& task : work.collectives) {
    us += 20.0f * static_cast<float>(comm->nranks) +
          static_cast<float>(TotalBytes(comm, task)) / 1000.0f;
  }
  for (const PeerTask& task : work.peers) us += 20.0f + static_cast<float>(task.bytes) / 1000.0f;
  return us;
}

}  // namespace simnccl
