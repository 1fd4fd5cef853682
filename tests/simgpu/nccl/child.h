// Split and shrink: communicators made from another communicator. Runs as a group's job, on the
// job's thread.
#pragma once

#include <vector>

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

// Collective over the parent. Stores the child when it is complete, or null without a color.
ncclResult_t Split(ncclComm* parent, int color, int key, uint64_t child, const Config& config,
                   ncclComm_t* out);
// Only the survivors (the parent's ranks in order) take part.
ncclResult_t Shrink(ncclComm* parent, const std::vector<int>& survivors, uint64_t child,
                    const Config& config, ncclComm_t* out);

}  // namespace simnccl
