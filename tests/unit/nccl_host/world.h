// Ranks of one communicator in one process, with the memory that NCCL's host code prepares for its
// kernels: one channel, a ring, a chain as the tree, and connections between all pairs.
// Thread-compatible.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/nccl_host/kernels/kernel.h"
#include "tests/nccl_host/kernels/versioned_layout.h"

namespace nccl_host {

// A version's layout: Layout::Ring and Layout::Collective.
struct Layout228 {
  using Ring = Ring228;
  using Collective = Collective228;
  static constexpr int kVersion = 22809;
};
struct Layout230 {
  using Ring = Ring229;
  using Collective = Collective230;
  static constexpr int kVersion = 23007;
};

template <typename Layout>
class World {
 public:
  using Memory = CommunicatorAndChannels<typename Layout::Ring>;
  static constexpr int kBufferBytes[] = {16 << 10, 16 << 10, 32 << 10};  // index: protocol

  explicit World(int ranks) : ranks_(ranks), ring_(static_cast<size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) AddRank(r);
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (from != to) Connect(from, to);
      }
    }
  }

  // Runs one collective of `count` elements of the function's type.
  void Run(const char* function, const std::vector<char*>& send, const std::vector<char*>& receive,
           size_t count, int root = 0) {
    typename Layout::Collective work{};
    const std::string_view name = function;
    const size_t grain = name.ends_with("LL128") ? 1920 : name.ends_with("LL") ? 16 : 512;
    work.bits.root = static_cast<uint32_t>(root);
    work.parts.count_first = count;
    // The chunks are small enough that a run has several and none exceeds a slot.
    work.parts.grains_first = grain == 1920 ? 1 : 1024 / grain;
    std::vector<typename Layout::Collective> works;
    for (int r = 0; r < ranks_; ++r) {
      works.push_back(work);
      works.back().send = send[static_cast<size_t>(r)];
      works.back().receive = receive[static_cast<size_t>(r)];
    }
    RunWorks(function, kCollectiveWork, works);
  }

  template <typename Work>
  void RunWorks(const char* function, WorkType type, const std::vector<Work>& works) {
    const FunctionTable table(Layout::kVersion, &function, 1);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        struct {
          Arguments arguments;
          Batch batch;
          alignas(16) Work work;
        } launch{};
        launch.arguments.communicator = &memory_[static_cast<size_t>(r)]->communicator;
        launch.arguments.channel_mask = 1;
        launch.arguments.storage = kInArguments;
        launch.batch.work_type = type;
        launch.batch.offset_base = static_cast<uint32_t>(reinterpret_cast<char*>(&launch.work) -
                                                         reinterpret_cast<char*>(&launch));
        launch.batch.offset_bits = 1;
        launch.work = works[static_cast<size_t>(r)];
        RunKernel(table, &launch, 1);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void Abort() { abort_ = 1; }
  [[nodiscard]] int ranks() const { return ranks_; }

 private:
  void AddRank(int rank) {
    auto memory = std::make_unique<Memory>();
    Communicator& communicator = memory->communicator;
    communicator.rank = rank;
    communicator.ranks = ranks_;
    std::memcpy(communicator.buffer_sizes, kBufferBytes, sizeof kBufferBytes);
    communicator.abort_flag = &abort_;
    auto& channel = memory->channels[0];
    peers_.emplace_back();
    for (int i = 0; i < ranks_; ++i) {
      storage_.push_back(std::make_unique<Peer>());
      peers_.back().push_back(storage_.back().get());
    }
    channel.ring.previous = (rank + ranks_ - 1) % ranks_;
    channel.ring.next = (rank + 1) % ranks_;
    channel.ring.index = rank;
    std::vector<int>& order = ring_[static_cast<size_t>(rank)];
    for (int i = 0; i < ranks_; ++i) order.push_back((rank + i) % ranks_);
    channel.ring.user_ranks = order.data();
    channel.tree = {rank, rank - 1, {rank + 1 < ranks_ ? rank + 1 : -1, -1, -1}};
    memory_.push_back(std::move(memory));
    for (int r = 0; r <= rank; ++r) {  // the vectors reallocate while they grow
      memory_[static_cast<size_t>(r)]->channels[0].peers = peers_[static_cast<size_t>(r)].data();
    }
  }

  void Connect(int from, int to) {
    for (int index = 0; index < 2; ++index) {
      Connection& sender = peers_[static_cast<size_t>(from)][static_cast<size_t>(to)]->send[index];
      for (int p = 0; p < 3; ++p) {
        buffers_.push_back(std::make_unique<uint64_t[]>(kBufferBytes[p] / 8 + 16));
        sender.buffers[p] = reinterpret_cast<char*>(buffers_.back().get());
      }
      buffers_.push_back(std::make_unique<uint64_t[]>(2));
      sender.head = buffers_.back().get();
      sender.tail = sender.head + 1;
      sender.step_size = kBufferBytes[kSimple] / kSteps;
      peers_[static_cast<size_t>(to)][static_cast<size_t>(from)]->receive[index] = sender;
    }
  }

  const int ranks_;
  uint32_t abort_ = 0;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<std::unique_ptr<Peer>> storage_;
  std::vector<std::vector<Peer*>> peers_;
  std::vector<std::vector<int>> ring_;
  std::vector<std::unique_ptr<uint64_t[]>> buffers_;
};

}  // namespace nccl_host
