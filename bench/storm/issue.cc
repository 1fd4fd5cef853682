#include "bench/storm/issue.h"

#include <thread>

#include "bench/storm/nccl_functions.h"

namespace rewire::bench {
namespace {

ncclResult_t IssueScaled(const Slot& slot, ncclComm_t comm, cudaStream_t stream) {
  float half = 0.5F;
  ncclRedOp_t op = ncclSum;
  const ncclResult_t made =
      ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, comm);
  if (made != ncclSuccess) return made;
  ncclResult_t result = ncclAllReduce(slot.input(), slot.output(), slot.operation().count,
                                      ncclFloat32, op, comm, stream);
  while (result == ncclInProgress && ncclCommGetAsyncError(comm, &result) == ncclSuccess) {
    std::this_thread::yield();
  }
  const ncclResult_t destroyed = ncclRedOpDestroy(op, comm);
  return destroyed == ncclSuccess ? result : destroyed;
}

ncclResult_t IssuePeers(const Slot& slot, ncclComm_t comm, cudaStream_t stream) {
  const Operation& o = slot.operation();
  const auto ranks = static_cast<int>(o.ranks.size());
  const size_t bytes = o.count * sizeof(uint64_t);
  const bool ring = o.kind == StepKind::kRing;
  ncclResult_t failed = ncclGroupStart();
  if (failed != ncclSuccess) return failed;
  const auto keep = [&](ncclResult_t result) {
    if (failed == ncclSuccess && result != ncclInProgress) failed = result;
  };
  for (int i = 0; i < (ring ? 1 : ranks); ++i) {
    const int to = ring ? (o.rank + 1) % ranks : i;
    const int from = ring ? (o.rank + ranks - 1) % ranks : i;
    const size_t at = ring ? 0 : bytes * static_cast<size_t>(i);
    keep(ncclSend(static_cast<char*>(slot.input()) + at, o.count, ncclUint64, to, comm, stream));
    keep(ncclRecv(static_cast<char*>(slot.output()) + at, o.count, ncclUint64, from, comm, stream));
  }
  const ncclResult_t ended = ncclGroupEnd();
  return failed == ncclSuccess ? ended : failed;
}

}  // namespace

ncclResult_t Issue(const Slot& slot, ncclComm_t comm, cudaStream_t stream) {
  const Operation& o = slot.operation();
  const void* const in = slot.input();
  void* const out = slot.output();
  const ncclDataType_t type = Slot::TypeOf(o.kind);
  switch (o.kind) {
    case StepKind::kPreMulSum:
      return IssueScaled(slot, comm, stream);
    case StepKind::kMaximum:
      return ncclAllReduce(in, out, o.count, type, ncclMax, comm, stream);
    case StepKind::kBroadcast:
      return ncclBroadcast(in, out, o.count, type, o.root, comm, stream);
    case StepKind::kReduce:
      return ncclReduce(in, out, o.count, type, ncclSum, o.root, comm, stream);
    case StepKind::kAllGather:
      return ncclAllGather(in, out, o.count, type, comm, stream);
    case StepKind::kReduceScatter:
      return ncclReduceScatter(in, out, o.count, type, ncclSum, comm, stream);
    case StepKind::kRing:
    case StepKind::kAllToAll:
      return IssuePeers(slot, comm, stream);
    default:
      return ncclAllReduce(in, out, o.count, type, ncclSum, comm, stream);
  }
}

}  // namespace rewire::bench
