// NCCL 2.28.9's host functions, as facts of its ABI: X(result, name without "nccl", parameters). No
// types are declared here, so that the same rows compile with our types and with NCCL's.
#pragma once

#define SIMNCCL_EACH_FUNCTION(X)                                                                 \
  X(ncclResult_t, MemAlloc, (void** ptr, size_t size))                                           \
  X(ncclResult_t, MemFree, (void* ptr))                                                          \
  X(ncclResult_t, GetVersion, (int* version))                                                    \
  X(ncclResult_t, GetUniqueId, (ncclUniqueId * id))                                              \
  X(ncclResult_t, CommInitRankConfig,                                                            \
    (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config))            \
  X(ncclResult_t, CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank))      \
  X(ncclResult_t, CommInitAll, (ncclComm_t * comms, int ndev, const int* devlist))               \
  X(ncclResult_t, CommFinalize, (ncclComm_t comm))                                               \
  X(ncclResult_t, CommDestroy, (ncclComm_t comm))                                                \
  X(ncclResult_t, CommAbort, (ncclComm_t comm))                                                  \
  X(ncclResult_t, CommRevoke, (ncclComm_t comm, int flags))                                      \
  X(ncclResult_t, CommSplit,                                                                     \
    (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config))            \
  X(ncclResult_t, CommShrink,                                                                    \
    (ncclComm_t comm, int* exclude, int count, ncclComm_t* newcomm, ncclConfig_t* config,        \
     int flags))                                                                                 \
  X(ncclResult_t, CommInitRankScalable,                                                          \
    (ncclComm_t * newcomm, int nranks, int rank, int nids, ncclUniqueId* ids,                    \
     ncclConfig_t* config))                                                                      \
  X(const char*, GetErrorString, (ncclResult_t result))                                          \
  X(const char*, GetLastError, (ncclComm_t comm))                                                \
  X(void, ResetDebugInit, (void))                                                                \
  X(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                    \
  X(ncclResult_t, CommCount, (const ncclComm_t comm, int* count))                                \
  X(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int* device))                            \
  X(ncclResult_t, CommUserRank, (const ncclComm_t comm, int* rank))                              \
  X(ncclResult_t, CommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle)) \
  X(ncclResult_t, CommDeregister, (const ncclComm_t comm, void* handle))                         \
  X(ncclResult_t, CommWindowRegister,                                                            \
    (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* window, int flags))                 \
  X(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))                  \
  X(ncclResult_t, RedOpCreatePreMulSum,                                                          \
    (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,       \
     ncclComm_t comm))                                                                           \
  X(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                               \
  X(ncclResult_t, Reduce,                                                                        \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,  \
     ncclComm_t comm, cudaStream_t stream))                                                      \
  X(ncclResult_t, Bcast,                                                                         \
    (void* buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,                   \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, Broadcast,                                                                     \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, AllReduce,                                                                     \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,            \
     ncclComm_t comm, cudaStream_t stream))                                                      \
  X(ncclResult_t, ReduceScatter,                                                                 \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,            \
     ncclComm_t comm, cudaStream_t stream))                                                      \
  X(ncclResult_t, AllGather,                                                                     \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,           \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, AlltoAll,                                                                      \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,           \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, Gather,                                                                        \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, Scatter,                                                                       \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, Send,                                                                          \
    (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, Recv,                                                                          \
    (void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                   \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, GroupStart, (void))                                                            \
  X(ncclResult_t, GroupEnd, (void))                                                              \
  X(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * info))
