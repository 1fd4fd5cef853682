// The host side of the device API. A CPU has no device code: a call that would give something to a
// kernel is refused by name. Teams are answered for ranks without load/store access to each other.
// Thread-safe.

#include "tests/simgpu/nccl/api_device.h"

#include "tests/simgpu/nccl/api.h"
#include "tests/simgpu/nccl/comm.h"
#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

ncclResult_t Refuse(const char* call) {
  return Fail(ncclInvalidUsage, "%s : the simulated library has no device API", call);
}

}  // namespace
}  // namespace simnccl

extern "C" {

ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void* /*requirements*/, void* /*out*/) {
  SIMNCCL_TRY(simnccl::CheckComm(comm, "DevCommCreate", "comm"));
  return simnccl::Refuse("ncclDevCommCreate");
}

ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void* /*device_comm*/) {
  SIMNCCL_TRY(simnccl::CheckComm(comm, "DevCommDestroy", "comm"));
  return simnccl::Refuse("ncclDevCommDestroy");
}

ncclTeam_t pncclTeamWorld(ncclComm_t comm) { return {comm->nranks, comm->rank, 1}; }

ncclTeam_t pncclTeamLsa(ncclComm_t /*comm*/) { return {1, 0, 1}; }

ncclTeam_t pncclTeamRail(ncclComm_t comm) { return {comm->nranks, comm->rank, 1}; }

int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return comm->rank + (rank - team.rank) * team.stride;
}

int pncclTeamRankToLsa(ncclComm_t /*comm*/, ncclTeam_t team, int rank) {
  return (rank - team.rank) * team.stride;
}

ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t /*team*/, int /*barriers*/,
                                              void* /*handle*/, void* /*requirement*/) {
  return simnccl::Refuse("ncclLsaBarrierCreateRequirement");
}

ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t /*comm*/, ncclTeam_t /*team*/,
                                              int /*barriers*/, void* /*handle*/,
                                              void* /*requirement*/) {
  return simnccl::Refuse("ncclGinBarrierCreateRequirement");
}

int pncclLLA2ACalcSlots(int max_elements, int max_element_bytes) {
  // A slot carries eight bytes of payload.
  return max_elements * ((max_element_bytes + 7) / 8);
}

ncclResult_t pncclLLA2ACreateRequirement(int /*blocks*/, int /*slots*/, void* /*handle*/,
                                         void* /*requirement*/) {
  return simnccl::Refuse("ncclLLA2ACreateRequirement");
}

}  // extern "C"

SIMNCCL_ALIAS(ncclDevCommCreate);
SIMNCCL_ALIAS(ncclDevCommDestroy);
SIMNCCL_ALIAS(ncclTeamWorld);
SIMNCCL_ALIAS(ncclTeamLsa);
SIMNCCL_ALIAS(ncclTeamRail);
SIMNCCL_ALIAS(ncclTeamRankToWorld);
SIMNCCL_ALIAS(ncclTeamRankToLsa);
SIMNCCL_ALIAS(ncclLsaBarrierCreateRequirement);
SIMNCCL_ALIAS(ncclGinBarrierCreateRequirement);
SIMNCCL_ALIAS(ncclLLA2ACalcSlots);
SIMNCCL_ALIAS(ncclLLA2ACreateRequirement);
