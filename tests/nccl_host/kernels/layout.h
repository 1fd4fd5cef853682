// The memory that NCCL's host code shares with its kernels, declared again here: only the parts
// that a kernel reads or writes. Plain data. The sources in NCCL: src/include/device.h (2.28.9:
// lines 128-445, 2.30.7: lines 133-473) and src/include/collectives.h (lines 70 and 72).
// versioned_layout.h has the structures that differ between versions. `./dev nccl-host` compares
// the sizes and the main offsets with the headers of the NCCL checkout (layout_check.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace nccl_host {

enum Protocol { kLL = 0, kLL128 = 1, kSimple = 2 };

constexpr int kSteps = 8;  // slots of a connection
constexpr int kMostChannels = 64;
constexpr int kProfiledWorks = 64;
constexpr int kTreeArity = 3;

// A slot's state, shared between the kernel and the proxy thread.
struct FifoSlot {
  int mode;  // kAtOffset: the slot's data is at `offset`
  int offset;
  int64_t size;
  void* pointer;
};
constexpr int kAtOffset = 1;

struct NetDevice {
  int type, version;
  void* handle;
  size_t size;
  int needs_progress;
};

// One direction of a connection to one peer on one channel.
struct Connection {
  char* buffers[3];  // index: protocol
  void* memory_handles[3];
  uint64_t* tail;  // steps that the sender has filled
  uint64_t* head;  // steps that the receiver has emptied
  int flags, shared, step_size;
  void** pointer_exchange;
  uint64_t* operand_exchange;
  FifoSlot* fifo;  // null: no proxy thread in this direction
  uint64_t step;   // kept from one kernel to the next
  uint64_t last_cleaning;
  NetDevice net;
};

struct Peer {
  Connection send[2], receive[2];  // [0] for collectives, [1] for point-to-point
};

struct Tree {
  int depth, up, down[kTreeArity];
};

struct Profiler {
  struct {
    uint64_t counter, timestamp;
  } data[kProfiledWorks];
};

struct Communicator {
  int rank, ranks, node, nodes, buffer_sizes[3], p2p_chunk_size, all_nvlink[2];
  int* collnet_ranks;
  volatile uint32_t* abort_flag;
  void* channels;
  int* local_ranks;
  Profiler *work_started, *work_completed;  // one per channel
};

struct alignas(16) P2pWork {
  char *send_address, *receive_address;
  size_t send_bytes, receive_bytes;
  int send_rank, receive_rank;
  uint8_t channels, first_channel, send_channels, receive_channels, send_chunk, receive_chunk;
  uint8_t send_ll : 1, receive_ll : 1, registered : 4, profiled : 1;
};

// NCCL from 2.29 on: one of several broadcasts that travel over one ring together.
struct alignas(16) BroadcastWork {
  int ring_depth, chunk_size;
  char *send, *receive;
  size_t bytes, bytes_done;
  uint8_t padding[8];
};

enum WorkType { kP2pWork = 0, kCollectiveWork = 1, kRegisteredWork = 2, kBroadcastWork = 3 };

struct alignas(16) Batch {
  uint32_t next_jump : 14, next_extends : 1, work_type : 2, function : 15;
  uint32_t offset_base;
  uint64_t offset_bits;
};

enum WorkStorage : uint8_t { kInArguments = 0, kInFifo = 1, kPersistent = 2 };

// A kernel's argument; its batches follow.
struct alignas(16) Arguments {
  Communicator* communicator;
  uint64_t channel_mask;
  uint8_t storage;
  uint32_t work_mask;
  char* works;
};

static_assert(sizeof(FifoSlot) == 24 && sizeof(Connection) == 152 && sizeof(Peer) == 608);
static_assert(sizeof(Communicator) == 88 && sizeof(P2pWork) == 48 && sizeof(BroadcastWork) == 48);
static_assert(sizeof(Batch) == 16 && sizeof(Arguments) == 32);

}  // namespace nccl_host
