#include "tests/nccl_host/kernels/collective_run.h"

#include <algorithm>
#include <cstring>

#include "tests/nccl_host/kernels/primitives.h"

namespace nccl_host {
namespace {

// A channel's part: elements [first, first + count) in chunks.
struct Part {
  int64_t whole, first, count, chunk;
};

// ncclCollCbdPart of src/include/device.h.
Part PartOf(const CollectiveWork& work, int channel, Protocol protocol, size_t element_bytes) {
  constexpr uint64_t kGrainBytes[] = {16, 1920, 512};  // index: protocol
  const uint64_t grain = kGrainBytes[protocol] / element_bytes;
  const size_t middles = static_cast<size_t>(work.last_channel - work.first_channel - 1);
  const bool several = work.last_channel > work.first_channel;
  const size_t middle = several ? work.count_middle * middles : 0;
  const size_t whole = work.count_first + middle + work.count_last;
  size_t first = 0;
  size_t count = work.count_first;
  uint64_t grains = work.grains_first;
  if (channel != work.first_channel) {
    const bool is_last = channel == work.last_channel;
    const auto before = static_cast<size_t>(channel - work.first_channel - 1);
    first = work.count_first + (is_last ? middle : before * work.count_middle);
    count = is_last ? work.count_last : work.count_middle;
    grains = is_last ? work.grains_last : work.grains_middle;
  }
  return {static_cast<int64_t>(whole), static_cast<int64_t>(first), static_cast<int64_t>(count),
          static_cast<int64_t>(grains * grain)};
}

class Run {
 public:
  Run(const BlockPlace& place, const Function& function, const CollectiveWork& work)
      : place_(place),
        function_(function),
        work_(work),
        elements_(function, Operand(function, work)),
        part_(PartOf(work, place.channel_id, function.protocol, elements_.bytes())),
        ranks_(place.communicator->ranks),
        ring_(place.channel->ring_ranks) {}

  void Start() {
    if (function_.tree) return Tree();
    const bool in_slices = function_.collective == Collective::kAllReduce ||
                           function_.collective == Collective::kAllGather ||
                           function_.collective == Collective::kReduceScatter;
    Primitives::Shape shape;
    shape.protocol = function_.protocol;
    if (function_.protocol == kSimple && in_slices) {
      shape.chunk_steps = 4;
      shape.slice_steps = 2;
    }
    shape.from = {place_.channel->previous};
    shape.to = {place_.channel->next};
    Primitives ring = MakePrimitives(shape);
    switch (function_.collective) {
      case Collective::kAllReduce:
        return AllReduce(&ring);
      case Collective::kAllGather:
        return EachChunk([&](int64_t at, int64_t count) { AllGather(&ring, at, count); });
      case Collective::kReduceScatter:
        return EachChunk([&](int64_t at, int64_t count) { ReduceScatter(&ring, at, count); });
      case Collective::kBroadcast:
        return EachChunk([&](int64_t at, int64_t count) { Broadcast(&ring, at, count); });
      case Collective::kReduce:
        return EachChunk([&](int64_t at, int64_t count) { Reduce(&ring, at, count); });
      case Collective::kAllGatherV:
      case Collective::kSendRecv:
        return;
    }
  }

 private:
  // The operand may lie in memory that the device reads when the kernel runs.
  static uint64_t Operand(const Function& function, const CollectiveWork& work) {
    if (function.op == DeviceOp::kNone || !work.operand_is_pointer) return work.operand;
    uint64_t operand = 0;
    std::memcpy(&operand, reinterpret_cast<const void*>(work.operand),
                simnccl::ElementBytes(function.type));
    return operand;
  }

  Primitives MakePrimitives(const Primitives::Shape& shape) {
    return Primitives(*place_.communicator, *place_.channel, place_.progress, elements_, shape,
                      work_.send, work_.receive);
  }

  template <typename Step>
  void EachChunk(Step step) {
    for (int64_t done = 0; done < part_.count && !place_.progress->aborted(); done += part_.chunk) {
      step(part_.first + done, std::min(part_.chunk, part_.count - done));
    }
  }

  // Returns the rank that is `distance` after this one in the ring.
  [[nodiscard]] int64_t RankAfter(int distance) const { return ring_[distance]; }

  // Reduces towards the root, then sends back. A device does both at once, over the same steps.
  void Tree() {
    const nccl_host::Tree& tree = place_.channel->tree;
    const std::vector<int> down(tree.down, tree.down + kTreeArity);
    const bool is_root = tree.up == -1;
    const bool is_leaf = tree.down[0] == -1;
    {
      Primitives up = MakePrimitives({function_.protocol, 1, 1, down, {tree.up}});
      EachChunk([&](int64_t at, int64_t count) {
        if (is_root) {
          up.ReceiveReduceCopy(at, at, count);
        } else if (is_leaf) {
          up.Send(at, count);
        } else {
          up.ReceiveReduceSend(at, count);
        }
      });
    }
    Primitives back = MakePrimitives({function_.protocol, 1, 1, {tree.up}, down});
    EachChunk([&](int64_t at, int64_t count) {
      if (is_root) {
        back.SendOutput(at, count);
      } else if (is_leaf) {
        back.Receive(at, count);
      } else {
        back.ReceiveCopySend(at, count);
      }
    });
  }

  void AllReduce(Primitives* ring) {
    int64_t chunk = part_.chunk;
    const int index = place_.channel->ring_index;
    const int64_t loop = ranks_ * part_.chunk;
    for (int64_t done = 0; done < part_.count && !place_.progress->aborted(); done += loop) {
      const int64_t left = part_.count - done;
      if (left < loop) {  // the last round has smaller chunks, in whole 16 bytes
        const auto unit = static_cast<int64_t>(16 / elements_.bytes());
        chunk = ((left + ranks_ - 1) / ranks_ + unit - 1) / unit * unit;
      }
      const auto at = [&](int which) { return part_.first + done + which % ranks_ * chunk; };
      const auto count = [&](int which) { return std::min(chunk, left - which % ranks_ * chunk); };
      int which = index + ranks_ - 1;
      ring->Send(at(which), count(which));
      for (int j = 2; j < ranks_; ++j) {
        which = index + ranks_ - j;
        ring->ReceiveReduceSend(at(which), count(which));
      }
      which = index;
      ring->ReceiveReduceCopySend(at(which), at(which), count(which));
      for (int j = 1; j < ranks_ - 1; ++j) {
        which = index + ranks_ - j;
        ring->ReceiveCopySend(at(which), count(which));
      }
      which = index + 1;
      ring->Receive(at(which), count(which));
    }
  }

  void AllGather(Primitives* ring, int64_t at, int64_t count) {
    const int64_t own = at + RankAfter(0) * part_.whole;
    if (work_.send + at * static_cast<int64_t>(elements_.bytes()) ==
        work_.receive + own * static_cast<int64_t>(elements_.bytes())) {
      ring->Send(at, count);
    } else {
      ring->CopySend(at, own, count);
    }
    for (int j = 1; j < ranks_ - 1; ++j) {
      ring->ReceiveCopySend(at + RankAfter(ranks_ - j) * part_.whole, count);
    }
    ring->Receive(at + RankAfter(1) * part_.whole, count);
  }

  void ReduceScatter(Primitives* ring, int64_t at, int64_t count) {
    ring->Send(at + RankAfter(ranks_ - 1) * part_.whole, count);
    for (int j = 2; j < ranks_; ++j) {
      ring->ReceiveReduceSend(at + RankAfter(ranks_ - j) * part_.whole, count);
    }
    ring->ReceiveReduceCopy(at + RankAfter(0) * part_.whole, at, count);
  }

  void Broadcast(Primitives* ring, int64_t at, int64_t count) {
    if (RankAfter(0) == work_.root) {
      if (work_.send == work_.receive) {
        ring->Send(at, count);
      } else {
        ring->CopySend(at, at, count);
      }
    } else if (RankAfter(1) == work_.root) {
      ring->Receive(at, count);
    } else {
      ring->ReceiveCopySend(at, count);
    }
  }

  void Reduce(Primitives* ring, int64_t at, int64_t count) {
    if (RankAfter(ranks_ - 1) == work_.root) {
      ring->Send(at, count);
    } else if (RankAfter(0) == work_.root) {
      ring->ReceiveReduceCopy(at, at, count);
    } else {
      ring->ReceiveReduceSend(at, count);
    }
  }

  const BlockPlace& place_;
  const Function& function_;
  const CollectiveWork& work_;
  const Elements elements_;
  const Part part_;
  const int ranks_;
  const int* const ring_;
};

}  // namespace

void RunCollective(const BlockPlace& place, const Function& function, const CollectiveWork& work) {
  Run(place, function, work).Start();
}

void RunBroadcasts(const BlockPlace& place, const Function& function,
                   std::vector<BroadcastWork> works) {
  const Elements bytes(function, 0);
  const int ranks = place.communicator->ranks;
  Primitives ring(*place.communicator, *place.channel, place.progress, bytes,
                  {function.protocol, 1, 1, {place.channel->previous}, {place.channel->next}},
                  nullptr, nullptr);
  const auto has_data = [](const BroadcastWork& work) { return work.bytes > 0; };
  while (std::any_of(works.begin(), works.end(), has_data) && !place.progress->aborted()) {
    for (BroadcastWork& work : works) {
      const size_t count = std::min(work.bytes, static_cast<size_t>(work.chunk_size));
      if (count == 0) continue;
      const auto at = static_cast<int64_t>(work.bytes_done);
      const auto size = static_cast<int64_t>(count);
      ring.SetData(work.ring_depth == 0 ? work.send : nullptr, work.receive);
      if (work.ring_depth != 0) {
        if (work.ring_depth == ranks - 1) {
          ring.Receive(at, size);
        } else {
          ring.ReceiveCopySend(at, size);
        }
      } else if (work.send == work.receive) {
        ring.Send(at, size);
      } else {
        ring.CopySend(at, at, size);
      }
      work.bytes -= count;
      work.bytes_done += count;
    }
  }
}

}  // namespace nccl_host
