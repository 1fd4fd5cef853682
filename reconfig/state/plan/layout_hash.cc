#include "reconfig/state/plan/layout_hash.h"

#include "reconfig/state/plan/digest.h"

namespace rewire::state {
namespace {

template <typename Number>
void AddList(const std::vector<Number>& numbers, Digest* digest) {
  digest->Add(numbers.size());
  for (const Number number : numbers) digest->Add(number);
}

template <typename Enum>
void AddEnum(Enum value, Digest* digest) {
  digest->Add(static_cast<uint64_t>(value));
}

void Add(const Parallel& p, Digest* digest) {
  for (const uint32_t size : {p.tensor, p.context, p.data, p.pipeline, p.expert, p.expert_tensor,
                              p.spare, p.virtual_stages, p.layers}) {
    digest->Add(size);
  }
  digest->Add(p.order);
  AddList(p.split, digest);
}

void Add(const Zero& zero, Digest* digest) {
  digest->Add(zero.stage);
  AddEnum(zero.way, digest);
  digest->Add(zero.block);
  digest->Add(zero.align);
}

void Add(const LogicalTensor& t, Digest* digest) {
  digest->Add(t.name);
  AddList(t.shape, digest);
  digest->Add(t.element_bytes);
  AddEnum(t.change, digest);
  AddEnum(t.role, digest);
  AddEnum(t.split.dim, digest);
  AddList(t.split.sections, digest);
  digest->Add(t.split.unit);
  digest->Add(t.split.padded ? 1 : 0);
  AddEnum(t.experts, digest);
  AddEnum(t.stages, digest);
  digest->Add(t.layer);
  digest->Add(t.buffer);
  digest->Add(t.position);
}

}  // namespace

uint64_t HashOf(const ParallelLayout& layout) {
  Digest digest;
  Add(layout.parallel(), &digest);
  Add(layout.zero(), &digest);
  digest.Add(layout.tensors().size());
  for (const LogicalTensor& tensor : layout.tensors()) Add(tensor, &digest);
  return digest.sum();
}

}  // namespace rewire::state
