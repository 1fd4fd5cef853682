// nccl_host.py compiles this file with the headers of a checkout, to check the layout of the memory
// that the emulated kernels read. No part of this file runs.
#include <cstddef>

#include "comm.h"
#include "device.h"
#include "tests/nccl_host/kernels/channel.h"
#include "tests/nccl_host/kernels/versioned_layout.h"

#define SAME_SIZE(ours, theirs) static_assert(sizeof(nccl_host::ours) == sizeof(theirs))
#define SAME_PLACE(ours, our_field, theirs, their_field) \
  static_assert(offsetof(nccl_host::ours, our_field) == offsetof(theirs, their_field))

namespace nccl_host {
#if NCCL_HOST_VERSION >= 22900
using Ring = Ring229;
#else
using Ring = Ring228;
#endif
#if NCCL_HOST_VERSION >= 23000
using Collective = Collective230;
#else
using Collective = Collective228;
#endif
using AnyChannel = ChannelMemory<Ring>;
using All = CommunicatorAndChannels<Ring>;
}  // namespace nccl_host

static_assert(NCCL_HOST_VERSION >= nccl_host::kOldestVersion &&
              NCCL_HOST_VERSION <= nccl_host::kNewestVersion);
static_assert(NCCL_STEPS == nccl_host::kSteps && MAXCHANNELS == nccl_host::kMostChannels);
SAME_SIZE(FifoSlot, ncclConnFifo);
SAME_PLACE(FifoSlot, size, ncclConnFifo, size);
SAME_SIZE(Connection, ncclConnInfo);
SAME_PLACE(Connection, tail, ncclConnInfo, tail);
SAME_PLACE(Connection, head, ncclConnInfo, head);
SAME_PLACE(Connection, step_size, ncclConnInfo, stepSize);
SAME_PLACE(Connection, fifo, ncclConnInfo, connFifo);
SAME_PLACE(Connection, step, ncclConnInfo, step);
SAME_SIZE(Peer, ncclDevChannelPeer);
SAME_PLACE(Peer, receive, ncclDevChannelPeer, recv);
SAME_SIZE(Communicator, ncclKernelComm);
SAME_PLACE(Communicator, ranks, ncclKernelComm, nRanks);
SAME_PLACE(Communicator, buffer_sizes, ncclKernelComm, buffSizes);
SAME_PLACE(Communicator, abort_flag, ncclKernelComm, abortFlag);
SAME_PLACE(Communicator, work_started, ncclKernelComm, workStarted);
SAME_PLACE(Communicator, work_completed, ncclKernelComm, workCompleted);
SAME_SIZE(Profiler, ncclDevProfiler);
SAME_SIZE(AnyChannel, ncclDevChannel);
SAME_PLACE(AnyChannel, ring, ncclDevChannel, ring);
SAME_PLACE(AnyChannel, ring.user_ranks, ncclDevChannel, ring.userRanks);
SAME_PLACE(AnyChannel, ring.index, ncclDevChannel, ring.index);
SAME_PLACE(AnyChannel, tree, ncclDevChannel, tree);
SAME_PLACE(AnyChannel, work_counter, ncclDevChannel, workCounter);
SAME_SIZE(All, ncclKernelCommAndChannels);
SAME_PLACE(All, channels, ncclKernelCommAndChannels, channels);
SAME_SIZE(P2pWork, ncclDevWorkP2p);
SAME_PLACE(P2pWork, send_bytes, ncclDevWorkP2p, sendBytes);
SAME_PLACE(P2pWork, send_rank, ncclDevWorkP2p, sendRank);
SAME_PLACE(P2pWork, channels, ncclDevWorkP2p, nP2pChannels);
SAME_PLACE(P2pWork, send_chunk, ncclDevWorkP2p, sendChunkSize_u32fp8);
SAME_SIZE(Collective, ncclDevWorkColl);
SAME_PLACE(Collective, bits.root, ncclDevWorkColl, root);
SAME_PLACE(Collective, receive, ncclDevWorkColl, recvbuff);
SAME_PLACE(Collective, send, ncclDevWorkColl, sendbuff);
SAME_PLACE(Collective, parts.send_offset, ncclDevWorkColl, sendbuffOffset);
SAME_PLACE(Collective, parts.count_first, ncclDevWorkColl, cbd.countLo);
SAME_PLACE(Collective, parts.operand, ncclDevWorkColl, redOpArg);
static_assert(nccl_host::kRegisteredPointers ==
              sizeof(ncclDevWorkCollReg) - sizeof(ncclDevWorkColl));
#if NCCL_HOST_VERSION >= 22900
SAME_SIZE(BroadcastWork, ncclDevWorkBcast);
SAME_PLACE(BroadcastWork, bytes_done, ncclDevWorkBcast, bytes_done);
#endif
SAME_SIZE(Batch, ncclDevWorkBatch);
SAME_PLACE(Batch, offset_bits, ncclDevWorkBatch, offsetBitset);
SAME_SIZE(Arguments, ncclDevKernelArgs);
SAME_PLACE(Arguments, channel_mask, ncclDevKernelArgs, channelMask);
SAME_PLACE(Arguments, work_mask, ncclDevKernelArgs, workMask);
SAME_PLACE(Arguments, works, ncclDevKernelArgs, workBuf);
