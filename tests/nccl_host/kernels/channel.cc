#include "tests/nccl_host/kernels/channel.h"

#include <cstring>

#include "tests/nccl_host/kernels/versioned_layout.h"

namespace nccl_host {
namespace {

constexpr int kFirstWithRankToIndex = 22900;
constexpr int kFirstWithPaddedWork = 23000;

template <typename Ring>
Channel Read(const Communicator& communicator, int index) {
  auto* const all =
      reinterpret_cast<CommunicatorAndChannels<Ring>*>(const_cast<Communicator*>(&communicator));
  ChannelMemory<Ring>& memory = all->channels[index];
  Channel channel;
  channel.peers = memory.peers;
  channel.previous = memory.ring.previous;
  channel.next = memory.ring.next;
  channel.ring_ranks = memory.ring.user_ranks;
  channel.ring_index = memory.ring.index;
  channel.tree = memory.tree;
  channel.work_counter = &memory.work_counter;
  return channel;
}

template <typename Memory>
CollectiveWork ReadWork(const char* bytes) {
  Memory memory;
  std::memcpy(static_cast<void*>(&memory), bytes, sizeof memory);
  CollectiveWork work;
  work.first_channel = static_cast<int>(memory.bits.first_channel);
  work.last_channel = static_cast<int>(memory.bits.last_channel);
  work.operand_is_pointer = memory.bits.operand_is_pointer != 0;
  work.profiled = memory.bits.profiled != 0;
  work.root = static_cast<int>(memory.bits.root);
  work.receive = memory.receive;
  work.send = memory.send;
  work.count_first = memory.parts.count_first;
  work.count_middle = memory.parts.count_middle;
  work.count_last = memory.parts.count_last;
  work.grains_first = memory.parts.grains_first;
  work.grains_middle = memory.parts.grains_middle;
  work.grains_last = memory.parts.grains_last;
  work.operand = memory.parts.operand;
  return work;
}

}  // namespace

Channel ReadChannel(const Communicator& communicator, int channel, int version) {
  return version >= kFirstWithRankToIndex ? Read<Ring229>(communicator, channel)
                                          : Read<Ring228>(communicator, channel);
}

size_t WorkHeadBytes(int work_type, int version) {
  if (work_type == kP2pWork) return sizeof(P2pWork);
  if (work_type == kBroadcastWork) return sizeof(BroadcastWork);
  return version >= kFirstWithPaddedWork ? sizeof(Collective230) : sizeof(Collective228);
}

size_t WorkBytes(int work_type, int version) {
  return WorkHeadBytes(work_type, version) +
         (work_type == kRegisteredWork ? kRegisteredPointers : 0);
}

CollectiveWork ReadCollective(const char* work, int version) {
  return version >= kFirstWithPaddedWork ? ReadWork<Collective230>(work)
                                         : ReadWork<Collective228>(work);
}

}  // namespace nccl_host
