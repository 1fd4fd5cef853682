// Split and shrink: communicators made from another one. As a group's job.
#pragma once

#include <vector>

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

// Collective over the parent. Publishes the child, or null for no color, when it is complete.
ncclResult_t Split(ncclComm* parent, int color, int key, uint64_t child, const Config& config,
                   ncclComm_t* out);
// Only the survivors (the parent's ranks in order) take part.
ncclResult_t Shrink(ncclComm* parent, const std::vector<int>& survivors, uint64_t child,
                    const Config& config, ncclComm_t* out);

}  // namespace simnccl
