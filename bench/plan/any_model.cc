#include "bench/plan/any_model.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::bench {
namespace {

using state::LogicalTensor;
using state::Parallel;
using state::Role;
using state::Stages;

constexpr uint32_t kSlotsPerNode = 8;

}  // namespace

std::vector<LogicalTensor> TensorsOf(const ModelSizes& sizes) {
  std::vector<LogicalTensor> tensors;
  const auto add = [&](LogicalTensor t) {
    t.element_bytes = 2;
    t.buffer = t.experts < 0 ? "dense" : "experts";
    tensors.push_back(t);
    if (!sizes.optimizer) return;
    t.element_bytes = 4;
    t.role = Role::kOptimizer;
    const std::string name = t.name;
    for (const char* slot : {"master", "exp_avg", "exp_avg_sq"}) {
      t.name = absl::StrCat(name, ".", slot);
      tensors.push_back(t);
    }
  };
  const uint64_t h = sizes.hidden;
  LogicalTensor embedding;
  embedding.name = "embedding";
  embedding.shape = {50257, h};
  embedding.split = {.dim = 0, .sections = {}, .unit = 128, .padded = true};
  embedding.stages = Stages::kFirstAndLast;
  add(embedding);
  for (uint32_t layer = 0; layer < sizes.layers; ++layer) {
    LogicalTensor t;
    t.stages = Stages::kLayer;
    t.layer = layer;
    const std::string prefix = absl::StrCat("layers.", layer, ".");
    for (uint32_t i = 0; i < sizes.matrices; ++i) {
      LogicalTensor matrix = t;
      matrix.name = absl::StrCat(prefix, i);
      switch (i % 4) {
        case 0:  // fused QKV
          matrix.shape = {3 * h, h};
          matrix.split = {.dim = 0, .sections = {h, h, h}, .unit = 128, .padded = false};
          break;
        case 1:  // projection
          matrix.shape = {h, h};
          matrix.split.dim = 1;
          break;
        case 2:  // up
          matrix.shape = {4 * h, h};
          matrix.split.dim = 0;
          break;
        case 3:  // down
          matrix.shape = {h, 4 * h};
          matrix.split.dim = 1;
          break;
      }
      add(matrix);
    }
    LogicalTensor norm = t;
    norm.name = prefix + "norm";
    norm.shape = {h};
    add(norm);
    if (sizes.experts == 0) continue;
    LogicalTensor experts = t;
    experts.name = prefix + "experts";
    experts.shape = {sizes.experts, h, h};
    experts.experts = 0;
    experts.split.dim = 1;
    add(experts);
  }
  return tensors;
}

Parallel AnyModelChange::NewParallel(const ModelSizes& sizes, uint32_t max_slots) {
  for (;;) {
    Parallel p;
    p.layers = sizes.layers;
    p.tensor = Of({1u, 2u, 4u, 8u});
    p.pipeline = Of({1u, 2u, 3u, 4u, 8u});
    p.context = Of({1u, 1u, 1u, 2u});
    p.order = Of({"tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"});
    p.virtual_stages = Of({1u, 1u, 2u});
    const uint32_t others = p.tensor * p.pipeline * p.context;
    if (others > max_slots || others * max_slots < 2) continue;
    p.data = static_cast<uint32_t>(In(1, max_slots / others));
    if (sizes.experts > 0) {
      p.expert = Of({1u, 2u, 4u, 8u});
      p.expert_tensor = Of({1u, p.tensor});
    }
    const uint32_t runs = p.pipeline * p.virtual_stages;
    for (uint32_t run = 0; run < runs; ++run) {
      p.split.push_back(sizes.layers / runs + (run < sizes.layers % runs ? 1 : 0));
    }
    if (Check(p).ok() && (sizes.experts == 0 || CheckExperts(p).ok())) return p;
  }
}

AnyModelChange::AnyModelChange(uint64_t seed, uint32_t max_slots) : random_(seed) {
  ModelSizes sizes;
  sizes.hidden = Of({1024u, 2048u, 4096u});
  sizes.layers = static_cast<uint32_t>(In(4, 12));
  sizes.experts = Of({0u, 0u, 8u, 16u});
  const std::vector<LogicalTensor> tensors = TensorsOf(sizes);
  const state::Zero zero = {
      static_cast<uint32_t>(In(0, 3)),
      Of({state::ZeroWay::kRows, state::ZeroWay::kFlat, state::ZeroWay::kBuffer}), 1, 128};
  for (int i = 0; i < 2; ++i) {
    layouts_.push_back(
        state::ParallelLayout::Make(NewParallel(sizes, max_slots), zero, tensors).value());
  }
  const auto seat = [](MemberId member) { return state::Seat{member, member / kSlotsPerNode}; };
  const uint32_t before = layouts_[0].slots();
  const uint32_t after = layouts_[1].slots();
  for (uint32_t slot = 0; slot < before; ++slot) old_seats_.push_back(seat(slot));
  // Some single members leave, and whole nodes; members with the next numbers come.
  std::set<MemberId> left;
  for (uint64_t n = In(0, 2); n > 0; --n) left.insert(static_cast<uint32_t>(In(0, before - 1)));
  if (before > 2 * kSlotsPerNode && In(0, 1) == 1) {
    const uint64_t node = In(0, before / kSlotsPerNode - 1);
    for (uint32_t i = 0; i < kSlotsPerNode; ++i) {
      left.insert(static_cast<uint32_t>(node * kSlotsPerNode + i));
    }
  }
  for (MemberId member = 0; members_.size() < after; ++member) {
    if (!left.contains(member)) members_.push_back(seat(member));
  }
}

}  // namespace rewire::bench
