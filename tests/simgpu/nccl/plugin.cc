#include "tests/simgpu/nccl/plugin.h"

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/socket_net.h"
#include "tests/simgpu/nccl/tuner.h"

namespace simnccl {

ncclResult_t AssignNet(ncclComm* comm) {
  auto net = std::make_shared<SocketNet>();
  SIMNCCL_TRY(net->Init(comm->hash, comm->config.traffic_class, &comm->net_context));
  comm->net = std::move(net);
  comm->net_initialized = true;
  comm->net_ptr_type = kNetPtrHost;
  return ncclSuccess;
}

void ReleaseNet(ncclComm* comm) {
  if (comm->net_initialized) comm->net->Finalize(comm->net_context);
  comm->net.reset();
}

ncclResult_t AssignTuner(ncclComm* /*comm*/, int /*nodes*/) { return ncclSuccess; }

}  // namespace simnccl
