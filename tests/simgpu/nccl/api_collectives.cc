// The exports that move data, and groups. Thread-safe; see nccl.h for the contracts.

#include <cstring>

#include "tests/simgpu/nccl/api.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/group.h"

namespace simnccl {
namespace {

ncclResult_t CheckEnqueue(ncclComm* comm, const char* call) {
  SIMNCCL_TRY(CheckComm(comm, call, "comm"));
  SIMNCCL_TRY(CheckReady(comm));
  if (comm->revoked.load()) return Fail(ncclInvalidUsage, "%s : communicator was revoked", call);
  if (comm->suspended.load()) return Fail(ncclInvalidUsage, "%s : communicator is suspended", call);
  if (comm->finalized.load()) {
    return Fail(ncclInvalidUsage, "%s : communicator was finalized", call);
  }
  if (comm->stopped.load()) {
    return Fail(ncclInvalidUsage, "%s : communicator was aborted by a shrink", call);
  }
  return ncclSuccess;
}

ncclResult_t CheckData(const ncclComm* comm, const char* call, ncclDataType_t type, int root,
                       bool buffers) {
  if (ElementBytes(type) == 0) return Fail(ncclInvalidArgument, "%s : invalid type %d", call, type);
  if (root < 0 || root >= comm->nranks) {
    return Fail(ncclInvalidArgument, "%s : invalid root %d (root should be in the 0..%d range)",
                call, root, comm->nranks);
  }
  if (!buffers) return Fail(ncclInvalidArgument, "%s : a buffer is NULL", call);
  return ncclSuccess;
}

ncclResult_t FindOperator(ncclComm* comm, const char* call, ncclRedOp_t op, ncclDataType_t type,
                          Operator* result) {
  if (op >= 0 && op < ncclNumOps) {
    *result = BuiltIn(op, type, comm->nranks);
    return ncclSuccess;
  }
  rewire::MutexLock lock(&comm->mutex);
  const auto it = comm->operators.find(op);
  if (it == comm->operators.end()) {
    return Fail(ncclInvalidArgument, "%s : invalid reduction operation %d", call, op);
  }
  if (comm->operator_types[op] != type) {
    return Fail(ncclInvalidArgument,
                "%s : Data type supplied to user-created ncclRedOp_t "
                "does not match type given to reduction operation",
                call);
  }
  *result = it->second;
  return ncclSuccess;
}

ncclResult_t Collective(const char* call, Function function, const void* send, void* recv,
                        size_t count, ncclDataType_t type, const ncclRedOp_t* op, int root,
                        ncclComm* comm, cudaStream_t stream) {
  return InGroup([&] {
    SIMNCCL_TRY(CheckEnqueue(comm, call));
    const bool rooted = function == Function::kBroadcast || function == Function::kReduce;
    const bool sends = function != Function::kBroadcast || comm->rank == root;
    const bool receives = function != Function::kReduce || comm->rank == root;
    SIMNCCL_TRY(
        CheckData(comm, call, type, rooted ? root : 0,
                  count == 0 || ((!sends || send != nullptr) && (!receives || recv != nullptr))));
    CollectiveTask task;
    task.function = function;
    task.send = send;
    task.recv = recv;
    task.count = count;
    task.type = type;
    task.root = root;
    task.stream = stream;
    if (op != nullptr) SIMNCCL_TRY(FindOperator(comm, call, *op, type, &task.op));
    return AddCollective(comm, task);
  });
}

// Adds one message; called inside a group level.
ncclResult_t Message(ncclComm* comm, bool sending, const void* data, size_t bytes, int peer,
                     cudaStream_t stream) {
  PeerTask task;
  task.sending = sending;
  task.peer = peer;
  task.data = static_cast<char*>(const_cast<void*>(data));
  task.bytes = bytes;
  task.stream = stream;
  return AddPeer(comm, task);
}

ncclResult_t OneMessage(const char* call, bool sending, const void* data, size_t count,
                        ncclDataType_t type, int peer, ncclComm* comm, cudaStream_t stream) {
  return InGroup([&] {
    SIMNCCL_TRY(CheckEnqueue(comm, call));
    SIMNCCL_TRY(CheckData(comm, call, type, peer, count == 0 || data != nullptr));
    return Message(comm, sending, data, count * ElementBytes(type), peer, stream);
  });
}

}  // namespace
}  // namespace simnccl

using simnccl::Collective;
using simnccl::Function;

extern "C" {

ncclResult_t pncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Collective("AllReduce", Function::kAllReduce, send, recv, count, type, &op, 0, comm,
                    stream);
}

ncclResult_t pncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Collective("Reduce", Function::kReduce, send, recv, count, type, &op, root, comm, stream);
}

ncclResult_t pncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                            int root, ncclComm_t comm, cudaStream_t stream) {
  return Collective("Broadcast", Function::kBroadcast, send, recv, count, type, nullptr, root, comm,
                    stream);
}

// Calls the exported name, as NCCL does: an interposed ncclBroadcast sees the real handle.
ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}

ncclResult_t pncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream) {
  return Collective("AllGather", Function::kAllGather, send, recv, count, type, nullptr, 0, comm,
                    stream);
}

ncclResult_t pncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Collective("ReduceScatter", Function::kReduceScatter, send, recv, count, type, &op, 0,
                    comm, stream);
}

ncclResult_t pncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream) {
  return simnccl::OneMessage("Send", true, send, count, type, peer, comm, stream);
}

ncclResult_t pncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
  return simnccl::OneMessage("Recv", false, recv, count, type, peer, comm, stream);
}

ncclResult_t pncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return simnccl::InGroup([&] {
    SIMNCCL_TRY(simnccl::CheckEnqueue(comm, "AlltoAll"));
    SIMNCCL_TRY(simnccl::CheckData(comm, "AlltoAll", type, 0,
                                   count == 0 || (send != nullptr && recv != nullptr)));
    if (send == recv && count > 0) {
      return simnccl::Fail(ncclInvalidArgument, "AlltoAll : in place is not supported");
    }
    const size_t bytes = count * simnccl::ElementBytes(type);
    for (int r = 0; r < comm->nranks && bytes > 0; ++r) {
      SIMNCCL_TRY(simnccl::Message(comm, true, static_cast<const char*>(send) + r * bytes, bytes, r,
                                   stream));
      SIMNCCL_TRY(
          simnccl::Message(comm, false, static_cast<char*>(recv) + r * bytes, bytes, r, stream));
    }
    return ncclSuccess;
  });
}

ncclResult_t pncclGather(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return simnccl::InGroup([&] {
    SIMNCCL_TRY(simnccl::CheckEnqueue(comm, "Gather"));
    SIMNCCL_TRY(simnccl::CheckData(
        comm, "Gather", type, root,
        count == 0 || (send != nullptr && (comm->rank != root || recv != nullptr))));
    const size_t bytes = count * simnccl::ElementBytes(type);
    if (bytes == 0) return ncclSuccess;
    for (int r = 0; r < comm->nranks && comm->rank == root; ++r) {
      SIMNCCL_TRY(
          simnccl::Message(comm, false, static_cast<char*>(recv) + r * bytes, bytes, r, stream));
    }
    return simnccl::Message(comm, true, send, bytes, root, stream);
  });
}

ncclResult_t pncclScatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, cudaStream_t stream) {
  return simnccl::InGroup([&] {
    SIMNCCL_TRY(simnccl::CheckEnqueue(comm, "Scatter"));
    SIMNCCL_TRY(simnccl::CheckData(
        comm, "Scatter", type, root,
        count == 0 || (recv != nullptr && (comm->rank != root || send != nullptr))));
    const size_t bytes = count * simnccl::ElementBytes(type);
    if (bytes == 0) return ncclSuccess;
    for (int r = 0; r < comm->nranks && comm->rank == root; ++r) {
      SIMNCCL_TRY(simnccl::Message(comm, true, static_cast<const char*>(send) + r * bytes, bytes, r,
                                   stream));
    }
    return simnccl::Message(comm, false, recv, bytes, root, stream);
  });
}

ncclResult_t pncclGroupStart(void) { return simnccl::GroupStart(); }

ncclResult_t pncclGroupEnd(void) { return simnccl::GroupEnd(nullptr); }

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* info) {
  // Null is allowed: the simulation runs, and the estimate is dropped.
  ncclSimInfo_t ignored = NCCL_SIM_INFO_INITIALIZER;
  return simnccl::GroupEnd(info != nullptr ? info : &ignored);
}

}  // extern "C"

SIMNCCL_ALIAS(ncclAllReduce);
SIMNCCL_ALIAS(ncclReduce);
SIMNCCL_ALIAS(ncclBroadcast);
SIMNCCL_ALIAS(ncclBcast);
SIMNCCL_ALIAS(ncclAllGather);
SIMNCCL_ALIAS(ncclReduceScatter);
SIMNCCL_ALIAS(ncclSend);
SIMNCCL_ALIAS(ncclRecv);
SIMNCCL_ALIAS(ncclAlltoAll);
SIMNCCL_ALIAS(ncclGather);
SIMNCCL_ALIAS(ncclScatter);
SIMNCCL_ALIAS(ncclGroupStart);
SIMNCCL_ALIAS(ncclGroupEnd);
SIMNCCL_ALIAS(ncclGroupSimulateEnd);
