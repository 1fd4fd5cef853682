// The layout of the memory that a run's processes share: a header, the results of all ranks, and
// for each rank its slots, checks, gradients and marks of split experts. A rank's part is a
// multiple of 8 bytes, because the next part begins with 64-bit words.
#include "bench/moe-exec/layer_run.h"

namespace rewire::bench {
namespace {

uint32_t OwnExperts(const LayerRunOptions& o) { return o.trace.experts / o.trace.devices; }
size_t GradientCount(const LayerRunOptions& o) {
  return size_t{o.layers} * OwnExperts(o) * o.expert.weights();
}
size_t RankBytes(const LayerRunOptions& o) {
  const size_t bytes = moe::kMaxSlots * sizeof(SlotOfRun) +
                       (o.micro_batches + 1) * sizeof(uint64_t) + GradientCount(o) * sizeof(float) +
                       size_t{o.layers} * OwnExperts(o);
  return (bytes + 7) / 8 * 8;
}

}  // namespace

size_t LayerRunBytes(const LayerRunOptions& o) {
  return kLayerRunHeaderBytes + o.trace.devices * (sizeof(LayerRunResult) + RankBytes(o));
}

LayerRunResult& ResultOf(const Crew& crew, uint32_t rank) {
  return reinterpret_cast<LayerRunResult*>(crew.memory() + kLayerRunHeaderBytes)[rank];
}

SlotOfRun* SlotsOf(const Crew& crew, const LayerRunOptions& o, uint32_t rank) {
  char* const first = crew.memory() + kLayerRunHeaderBytes + crew.ranks() * sizeof(LayerRunResult);
  return reinterpret_cast<SlotOfRun*>(first + rank * RankBytes(o));
}

uint64_t* ChecksOf(const Crew& crew, const LayerRunOptions& o, uint32_t rank) {
  return reinterpret_cast<uint64_t*>(SlotsOf(crew, o, rank) + moe::kMaxSlots);
}

float* GradientsOf(const Crew& crew, const LayerRunOptions& o, uint32_t rank) {
  return reinterpret_cast<float*>(ChecksOf(crew, o, rank) + o.micro_batches + 1);
}

uint8_t* SplitOf(const Crew& crew, const LayerRunOptions& o, uint32_t rank) {
  return reinterpret_cast<uint8_t*>(GradientsOf(crew, o, rank) + GradientCount(o));
}

}  // namespace rewire::bench
