// Runs one channel's part of a collective (src/device/all_reduce.h, all_gather.h, all_gather_v.h,
// broadcast.h, reduce.h and reduce_scatter.h of NCCL). Called by the thread of one block. A call
// waits for the peers' parts, and returns early if the communicator is aborted.
#pragma once

#include <vector>

#include "tests/nccl_host/kernels/channel.h"
#include "tests/nccl_host/kernels/function.h"
#include "tests/nccl_host/kernels/progress.h"

namespace nccl_host {

struct BlockPlace {
  const Communicator* communicator;
  const Channel* channel;
  int channel_id;
  Progress* progress;
};

void RunCollective(const BlockPlace& place, const Function& function, const CollectiveWork& work);
// Runs several broadcasts in turn, a chunk of each at a time.
void RunBroadcasts(const BlockPlace& place, const Function& function,
                   std::vector<BroadcastWork> works);

}  // namespace nccl_host
