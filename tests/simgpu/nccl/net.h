// The communicator's network interface, with the semantics of NCCL's net plugin ABI v11 (one
// context per communicator). It is implemented by the built-in sockets and by one adapter per
// plugin ABI version. NCCL's contract fixes the threads. Init and Devices: the thread that makes
// the communicator. Listen/Connect/Accept/RegMr/Close*: the service thread.
// Isend/Irecv/Iflush/Test: the progress thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

inline constexpr int kNetHandleBytes = 128;
inline constexpr int kNetPtrHost = 1;
inline constexpr int kNetPtrCuda = 2;
inline constexpr int kNetMaxRequests = 32;

struct NetProperties {
  int ptr_support = kNetPtrHost;
  int max_comms = 1;
  int max_recvs = 1;
  size_t max_p2p_bytes = 0;
  size_t max_coll_bytes = 0;
};

class Net {
 public:
  virtual ~Net() = default;
  [[nodiscard]] virtual std::string name() const = 0;

  virtual ncclResult_t Init(uint64_t comm_id, int traffic_class, void** context) = 0;
  virtual ncclResult_t Finalize(void* context) = 0;
  virtual ncclResult_t Devices(int* count) = 0;
  virtual ncclResult_t GetProperties(int device, NetProperties* properties) = 0;

  virtual ncclResult_t Listen(void* context, int device, void* handle, void** listen_comm) = 0;
  // Null in *comm: not connected yet, call again.
  virtual ncclResult_t Connect(void* context, int device, void* handle, void** send_comm) = 0;
  virtual ncclResult_t Accept(void* listen_comm, void** recv_comm) = 0;
  virtual ncclResult_t RegMr(void* comm, void* data, size_t bytes, int type, void** mh) = 0;
  virtual ncclResult_t DeregMr(void* comm, void* mh) = 0;
  // Null in *request: not possible now, call again.
  virtual ncclResult_t Isend(void* send_comm, void* data, size_t bytes, int tag, void* mh,
                             void** request) = 0;
  virtual ncclResult_t Irecv(void* recv_comm, void* data, size_t bytes, int tag, void* mh,
                             void** request) = 0;
  virtual ncclResult_t Test(void* request, int* done, int* bytes) = 0;
  virtual ncclResult_t CloseSend(void* comm) = 0;
  virtual ncclResult_t CloseRecv(void* comm) = 0;
  virtual ncclResult_t CloseListen(void* comm) = 0;

  // Abandons a connect. Plugins have no call for it.
  virtual void AbandonConnect(void* /*handle*/) {}
  // Returns the descriptor to poll until Test may have news; -1 if the transport has none.
  virtual int PollFd(void* /*comm*/, bool /*sending*/, short* /*events*/) { return -1; }
};

}  // namespace simnccl
