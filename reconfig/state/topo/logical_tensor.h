// One tensor of a model as all members together see it, and the named patterns by which a parallel
// layout divides it. Pure data.
//
// Patterns: a tensor is replicated (no split), divided along a dimension, or in sections along it
// (fused QKV, fused gate and up projections). Units keep heads together, or pad a vocabulary.
// Experts are divided over the expert-parallel slots. A stage of the pipeline owns the tensors of
// its layers. ZeRO divides what a slot has further, over the slots that would have the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/state/topo/layout.h"
#include "reconfig/state/topo/parallel.h"

namespace rewire::state {

// The division over the tensor-parallel slots (those of expert_tensor for a tensor of experts).
struct Split {
  int32_t dim = -1;  // -1: each slot has the whole
  // The lengths of the sections along dim, each of which is divided alone. Empty: one section.
  std::vector<uint64_t> sections;
  // Slot i of n has the part [i * c, (i + 1) * c) of a section, where c is the least multiple of
  // `unit` for which n parts are enough. The last parts are shorter or empty.
  uint64_t unit = 1;
  // Each slot's memory has c elements along dim: a padded vocabulary. The padding is no state.
  bool padded = false;
  bool operator==(const Split&) const = default;
};

// ZeRO stage 1 divides the optimizer's tensors, stage 2 also gradients, stage 3 also parameters.
enum class Role : uint8_t { kParameter = 0, kGradient = 1, kOptimizer = 2, kOther = 3 };

enum class Stages : uint8_t {
  kLayer = 0,  // the stage of the tensor's layer
  kFirst = 1,
  kLast = 2,
  kFirstAndLast = 3,  // tied embeddings: both stages have the whole
  kAll = 4,
  kEverySlot = 5,  // all stages, and the slots that are spare
};

// Limits of a tensor, far above those of any model; they keep products from overflowing.
inline constexpr uint64_t kMaxElements = uint64_t{1} << 40;
inline constexpr uint32_t kMaxElementBytes = 1 << 20;

struct LogicalTensor {
  std::string name;
  std::vector<uint64_t> shape;  // 1 to kMaxDims sizes; at most kMaxElements elements
  uint32_t element_bytes = 1;
  Change change = Change::kConstant;
  Role role = Role::kParameter;
  Split split;
  int32_t experts = -1;  // the dimension that counts experts; -1: none
  Stages stages = Stages::kAll;
  uint32_t layer = 0;  // with Stages::kLayer
  // The buffer in which ZeRO lays tensors one after another, in the order of `position`; used with
  // ZeroWay::kBuffer.
  std::string buffer;
  uint32_t position = 0;
  bool operator==(const LogicalTensor&) const = default;
};

// How ZeRO divides the elements that a slot has, in row-major order, over its n shards.
enum class ZeroWay : uint8_t {
  kRows = 0,    // equal numbers of rows of dimension 0: FSDP2's Shard(0)
  kFlat = 1,    // equal intervals: rewireShard()
  kBuffer = 2,  // equal intervals of a buffer of several tensors: FSDP's flat parameters, and
                // Megatron-Core's distributed optimizer
  kBlocks = 3,  // blocks in turn: interleaved ZeRO (ElasWave)
};

struct Zero {
  uint32_t stage = 0;
  ZeroWay way = ZeroWay::kFlat;
  uint64_t block = 1;  // kBlocks: elements of a block
  uint64_t align = 1;  // kBuffer: each tensor begins, and each interval ends, at a multiple of this
  bool operator==(const Zero&) const = default;
};

// Returns an error that names the tensor, the field, its value, and what it must be. parallel: must
// be valid.
absl::Status Check(const LogicalTensor& tensor, const Parallel& parallel);
absl::Status Check(const Zero& zero);

}  // namespace rewire::state
