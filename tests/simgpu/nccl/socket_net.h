// The built-in transport: one TCP connection per pair of send_comm and recv_comm, messages with a
// length prefix. Host memory only, and one buffer per receive, as in NCCL's own socket transport.
// The transport has no threads: the polling calls do the work.
#pragma once

#include "tests/simgpu/nccl/net.h"

namespace simnccl {

class SocketNet final : public Net {
 public:
  [[nodiscard]] std::string name() const override { return "Socket"; }
  ncclResult_t Init(uint64_t comm_id, int traffic_class, void** context) override;
  ncclResult_t Finalize(void* context) override;
  ncclResult_t Devices(int* count) override;
  ncclResult_t GetProperties(int device, NetProperties* properties) override;
  ncclResult_t Listen(void* context, int device, void* handle, void** listen_comm) override;
  ncclResult_t Connect(void* context, int device, void* handle, void** send_comm) override;
  ncclResult_t Accept(void* listen_comm, void** recv_comm) override;
  ncclResult_t RegMr(void* comm, void* data, size_t bytes, int type, void** mh) override;
  ncclResult_t DeregMr(void* comm, void* mh) override;
  ncclResult_t Isend(void* send_comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override;
  ncclResult_t Irecv(void* recv_comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override;
  ncclResult_t Test(void* request, int* done, int* bytes) override;
  ncclResult_t CloseSend(void* comm) override;
  ncclResult_t CloseRecv(void* comm) override;
  ncclResult_t CloseListen(void* comm) override;
  void AbandonConnect(void* handle) override;
  int PollFd(void* comm, bool sending, short* events) override;
};

}  // namespace simnccl
