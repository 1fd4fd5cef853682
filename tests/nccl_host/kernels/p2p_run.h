// Runs one channel's part of the sends and receives of a batch (src/device/sendrecv.h of NCCL). All
// of them progress in turn, as the warps of a block do. Called by the thread of one block.
#pragma once

#include <vector>

#include "tests/nccl_host/kernels/collective_run.h"

namespace nccl_host {

void RunSendsAndReceives(const BlockPlace& place, const std::vector<P2pWork>& works);

}  // namespace nccl_host
