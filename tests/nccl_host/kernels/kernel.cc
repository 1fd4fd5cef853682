#include "tests/nccl_host/kernels/kernel.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/nccl_host/kernels/channel.h"
#include "tests/nccl_host/kernels/collective_run.h"
#include "tests/nccl_host/kernels/p2p_run.h"

namespace nccl_host {
namespace {

uint64_t Nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The works of a batch and of the batches that extend the batch.
struct Works {
  int type = kP2pWork;
  size_t function = 0;
  std::vector<P2pWork> p2p;
  std::vector<CollectiveWork> collectives;
  std::vector<BroadcastWork> broadcasts;
  std::vector<bool> profiled;
};

class Block {
 public:
  Block(const FunctionTable& table, const Arguments* arguments, unsigned int index)
      : table_(table),
        arguments_(arguments),
        batches_(reinterpret_cast<const Batch*>(arguments + 1)),
        index_(index),
        progress_(arguments->communicator) {
    uint64_t mask = arguments->channel_mask;
    for (unsigned int i = 0; i < index; ++i) mask &= mask - 1;
    channel_id_ = __builtin_ctzll(mask);
    channel_ = ReadChannel(*arguments->communicator, channel_id_, table.version());
  }

  void Run() {
    const BlockPlace place{arguments_->communicator, &channel_, channel_id_, &progress_};
    for (size_t at = index_; !progress_.aborted();) {
      Works works;
      at = Gather(at, &works);
      Profile(arguments_->communicator->work_started, works);
      switch (works.type) {
        case kP2pWork:
          RunSendsAndReceives(place, works.p2p);
          break;
        case kBroadcastWork:
          RunBroadcasts(place, table_.At(works.function), works.broadcasts);
          break;
        default:
          for (const CollectiveWork& work : works.collectives) {
            RunCollective(place, table_.At(works.function), work);
          }
      }
      Profile(arguments_->communicator->work_completed, works);
      *channel_.work_counter += works.profiled.size();
      if (batches_[at].next_jump == 0) break;
      at += batches_[at].next_jump;
    }
  }

 private:
  // Returns the last batch that belongs to these works.
  size_t Gather(size_t at, Works* works) {
    for (;;) {
      const Batch& batch = batches_[at];
      works->type = static_cast<int>(batch.work_type);
      works->function = batch.function;
      const size_t bytes = WorkBytes(works->type, table_.version());
      for (uint64_t bits = batch.offset_bits; bits != 0; bits &= bits - 1) {
        Add(batch.offset_base + static_cast<size_t>(__builtin_ctzll(bits)) * bytes, works);
      }
      if (batch.next_extends == 0) return at;
      at += batch.next_jump;
    }
  }

  void Add(size_t offset, Works* works) {
    constexpr size_t kUnit = 16;  // works wrap around the fifo in these units
    alignas(16) char work[256];
    const size_t bytes = WorkHeadBytes(works->type, table_.version());
    for (size_t i = 0; i < bytes; i += kUnit) {
      const char* const from = arguments_->storage == kInArguments
                                   ? reinterpret_cast<const char*>(arguments_) + offset + i
                                   : arguments_->works + ((offset + i) & arguments_->work_mask);
      std::memcpy(work + i, from, kUnit);
    }
    switch (works->type) {
      case kP2pWork:
        works->p2p.push_back(*reinterpret_cast<const P2pWork*>(work));
        works->profiled.push_back(works->p2p.back().profiled != 0);
        break;
      case kBroadcastWork:
        works->broadcasts.push_back(*reinterpret_cast<const BroadcastWork*>(work));
        works->profiled.push_back(false);
        break;
      default:
        works->collectives.push_back(ReadCollective(work, table_.version()));
        works->profiled.push_back(works->collectives.back().profiled);
    }
  }

  void Profile(Profiler* profilers, const Works& works) {
    if (profilers == nullptr) return;
    for (size_t i = 0; i < works.profiled.size(); ++i) {
      if (!works.profiled[i]) continue;
      const uint64_t counter = *channel_.work_counter + 1 + i;
      auto& event = profilers[channel_id_].data[counter % kProfiledWorks];
      event.timestamp = Nanoseconds();
      Store(&event.counter, counter);
    }
  }

  const FunctionTable& table_;
  const Arguments* const arguments_;
  const Batch* const batches_;
  const unsigned int index_;
  Progress progress_;
  int channel_id_ = 0;
  Channel channel_;
};

}  // namespace

FunctionTable::FunctionTable(int version, const char* const* names, size_t count)
    : version_(version) {
  if (version < kOldestVersion || version > kNewestVersion) {
    std::fprintf(stderr, "nccl_host: NCCL version=%d: its kernels are not emulated (%d to %d)\n",
                 version, kOldestVersion, kNewestVersion);
    std::abort();
  }
  for (size_t i = 0; i < count; ++i) {
    names_.emplace_back(names[i]);
    functions_.push_back(ParseFunction(names[i]));
  }
}

const Function& FunctionTable::At(size_t number) const {
  if (number >= functions_.size() || !functions_[number].has_value()) {
    std::fprintf(stderr,
                 "nccl_host: device function %zu (%s) is not emulated (NCCL_ALGO=RING,TREE)\n",
                 number, number < names_.size() ? names_[number].c_str() : "unknown");
    std::abort();
  }
  return *functions_[number];
}

void RunKernel(const FunctionTable& table, const void* arguments, unsigned int blocks) {
  const auto* const kernel = static_cast<const Arguments*>(arguments);
  std::vector<std::thread> others;
  for (unsigned int i = 1; i < blocks; ++i) {
    others.emplace_back([&table, kernel, i] { Block(table, kernel, i).Run(); });
  }
  Block(table, kernel, 0).Run();
  for (std::thread& other : others) other.join();
}

}  // namespace nccl_host
