// Random parallel worlds, and small tensors of every pattern, from a seed. For tests of layouts and
// plans; owned by one thread.
#pragma once

#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

class AnyLayout {
 public:
  explicit AnyLayout(uint64_t seed) : random_(seed) {}
  uint64_t In(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random_);
  }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return *(values.begin() + In(0, values.size() - 1));
  }

  Parallel NewParallel() {
    Parallel p;
    p.tensor = static_cast<uint32_t>(In(1, 4));
    p.context = static_cast<uint32_t>(In(1, 2));
    p.data = static_cast<uint32_t>(In(1, 4));
    p.pipeline = static_cast<uint32_t>(In(1, 3));
    p.virtual_stages = static_cast<uint32_t>(In(1, 2));
    p.layers = p.pipeline * p.virtual_stages * static_cast<uint32_t>(In(1, 2));
    p.order = Of<const char*>({"tp-cp-ep-dp-pp", "dp-ep-tp-cp-pp", "tp-cp-ep-pp-dp"});
    p.expert = static_cast<uint32_t>(In(1, 4));
    p.expert_tensor = static_cast<uint32_t>(In(1, 2));
    if (!Check(p).ok()) p.expert = p.expert_tensor = 1;
    if (In(0, 2) == 0) p.spare = static_cast<uint32_t>(In(1, 2));
    return p;
  }
  Zero NewZero() {
    return {static_cast<uint32_t>(In(0, 3)),
            Of({ZeroWay::kRows, ZeroWay::kFlat, ZeroWay::kBuffer, ZeroWay::kBlocks}), In(1, 5),
            In(1, 4)};
  }
  LogicalTensor NewTensor(const Parallel& p) {
    LogicalTensor t;
    const size_t dims = In(1, 3);
    for (size_t d = 0; d < dims; ++d) t.shape.push_back(In(1, 7));
    t.role = Of({Role::kParameter, Role::kGradient, Role::kOptimizer, Role::kOther});
    t.stages =
        Of({Stages::kLayer, Stages::kFirst, Stages::kLast, Stages::kFirstAndLast, Stages::kAll});
    t.layer = static_cast<uint32_t>(In(0, p.layers - 1));
    if (In(0, 2) > 0) {
      t.split.dim = static_cast<int32_t>(In(0, dims - 1));
      t.split.unit = In(1, 3);
      t.split.padded = In(0, 1) == 1;
      uint64_t& length = t.shape[static_cast<size_t>(t.split.dim)];
      if (In(0, 1) == 1) {
        t.split.sections = {In(1, 6), In(0, 3), In(1, 4)};
        length = t.split.sections[0] + t.split.sections[1] + t.split.sections[2];
      }
    }
    if (dims > 1 && CheckExperts(p).ok() && In(0, 2) == 0) {
      t.experts = t.split.dim == 0 ? 1 : 0;
      t.shape[static_cast<size_t>(t.experts)] = p.expert * In(1, 2);
    }
    t.buffer = t.experts < 0 ? "dense" : "experts";
    if (t.experts < 0 && t.split.dim < 0 && In(0, 2) == 0) {
      t.role = Role::kOther;
      t.stages = Stages::kEverySlot;
    }
    return t;
  }
  // Returns two layouts of the same one to three tensors. Splits and degrees differ.
  std::pair<ParallelLayout, ParallelLayout> NewPair() {
    const Parallel before = NewParallel();
    Parallel after = NewParallel();
    after.layers = before.layers;
    after.split.assign(size_t{after.pipeline} * after.virtual_stages, 0);
    for (uint32_t layer = 0; layer < after.layers; ++layer) {
      ++after.split[In(0, after.split.size() - 1)];
    }
    std::vector<LogicalTensor> old_tensors;
    std::vector<LogicalTensor> new_tensors;
    for (uint64_t n = In(1, 3); n > 0; --n) {
      LogicalTensor tensor = NewTensor(before);
      if (tensor.experts >= 0) {
        tensor.shape[static_cast<size_t>(tensor.experts)] = uint64_t{before.expert} * after.expert;
      }
      old_tensors.push_back(tensor);
      if (tensor.split.dim >= 0 && tensor.experts < 0) {
        tensor.split.dim = static_cast<int32_t>(In(0, tensor.shape.size() - 1));
        tensor.split.sections.clear();
      }
      if (tensor.experts >= 0 && !CheckExperts(after).ok()) {
        tensor.experts = -1;
        tensor.buffer = "dense";
      }
      if (tensor.split.dim >= 0) tensor.split.unit = In(1, 2);
      new_tensors.push_back(tensor);
    }
    // In this order, so that a seed gives the same pair with every compiler.
    const Zero old_zero = NewZero();
    const Zero new_zero = NewZero();
    return {ParallelLayout::Make(before, old_zero, old_tensors).value(),
            ParallelLayout::Make(after, new_zero, new_tensors).value()};
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace rewire::state
