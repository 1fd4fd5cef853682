// The structures of src/include/device.h that differ between NCCL's versions. Plain data. Used by
// channel.cc and by the comparison with a checkout's headers.
#pragma once

#include "tests/nccl_host/kernels/layout.h"

namespace nccl_host {

struct Ring228 {
  int previous, next;
  int* user_ranks;
  int index;
};

// From 2.29 on (src/include/device.h:175 of 2.30.7).
struct Ring229 {
  int previous, next;
  int *user_ranks, *rank_to_index;
  int index;
};

struct Direct {
  int depth, out, heads, head_rank, shift, head[8], up[7], down[7];
};

struct Nvls {
  int out, heads, head_rank, up[32], down, tree_up, tree_down[kTreeArity];
};

template <typename Ring>
struct alignas(16) ChannelMemory {
  Peer** peers;
  Ring ring;
  Tree tree, collnet_chain;
  Direct collnet_direct;
  Nvls nvls;
  uint32_t* work_fifo_done;
  uint64_t work_counter;
};

template <typename Ring>
struct alignas(16) CommunicatorAndChannels {
  Communicator communicator;
  ChannelMemory<Ring> channels[kMostChannels];
};

struct CollectiveBits {
  uint32_t first_channel : 8, last_channel : 8, warps : 8, operand_is_pointer : 1, registered : 2,
      one_node : 1, direct : 2, one_rank_per_node : 1, profiled : 1;
  uint32_t root;
};

struct CollectiveParts {
  uintptr_t send_offset, receive_offset;
  uintptr_t *remote_send, *remote_receive;
  size_t count_first, count_middle, count_last;
  uint64_t grains_first : 21, grains_middle : 21, grains_last : 21;
  uint64_t operand;
};

struct alignas(16) Collective228 {
  CollectiveBits bits;
  char *receive, *send;
  CollectiveParts parts;
};

// From 2.30 on (src/include/device.h:284 of 2.30.7): padded to 16 bytes in three places.
struct alignas(16) Collective230 {
  CollectiveBits bits;
  uint64_t padding1[2];
  char *receive, *send;
  uint64_t padding0;
  CollectiveParts parts;
};

constexpr size_t kRegisteredPointers = size_t{3} * 8 * sizeof(void*);

static_assert(sizeof(ChannelMemory<Ring228>) == 368 && sizeof(ChannelMemory<Ring229>) == 368);
static_assert(offsetof(ChannelMemory<Ring228>, work_counter) == 352);
static_assert(offsetof(ChannelMemory<Ring229>, work_counter) == 360);
static_assert(sizeof(Collective228) == 96 && sizeof(Collective230) == 128);

}  // namespace nccl_host
