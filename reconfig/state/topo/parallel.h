// The degrees of parallelism of a world, and the place of each slot in them.
//
// As in Megatron-Core and DeepSpeed, the slots are numbered in mixed radix: `order` lists the axes
// with the one whose neighbours have adjacent slots first. Megatron-Core's default is
// "tp-cp-ep-dp-pp", DeepSpeed's pipeline topology is "tp-dp-pp". Expert layers have a place of
// their own: their slots of one stage are divided into expert_tensor * expert * expert_data, and
// the other layers' into tensor * context * data. Pure and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rewire::state {

struct Parallel {
  uint32_t tensor = 1;
  uint32_t context = 1;
  uint32_t data = 1;
  uint32_t pipeline = 1;
  uint32_t expert = 1;
  uint32_t expert_tensor = 1;
  uint32_t spare = 0;  // slots after all others, which have only what is on every slot
  std::string order = "tp-cp-ep-dp-pp";
  // Interleaved pipeline: each stage has this many runs of adjacent layers.
  uint32_t virtual_stages = 1;
  uint32_t layers = 0;
  // The number of layers in each run; empty: equal numbers. Run r is on stage r % pipeline.
  std::vector<uint32_t> split;
  bool operator==(const Parallel&) const = default;

  [[nodiscard]] uint32_t slots() const { return working() + spare; }
  // The number of slots that are not spare.
  [[nodiscard]] uint32_t working() const { return tensor * context * data * pipeline; }
  // The number of slots with the same experts.
  [[nodiscard]] uint32_t expert_data() const {
    return tensor * context * data / (expert * expert_tensor);
  }
};

// The place of a slot. shard: among the slots that may divide a tensor further (ZeRO), in ascending
// order.
struct Place {
  uint32_t tensor = 0;
  uint32_t expert = 0;
  uint32_t pipeline = 0;
  uint32_t shard = 0;
  bool operator==(const Place&) const = default;
};

// An axis along which slots are numbered. Neighbours on the axis are `stride` slots apart.
struct Axis {
  const char* name = nullptr;
  uint32_t size = 1;
  uint32_t stride = 1;
};

// Returns an error that names the field, its value and the range.
absl::Status Check(const Parallel& parallel);
// Returns an error if layers with experts would have other stages than the other layers.
absl::Status CheckExperts(const Parallel& parallel);

// Returns the slot's place in layers without experts. parallel: must be valid; slot: must be below
// parallel.working().
Place PlaceOf(const Parallel& parallel, uint32_t slot);
// Returns the slot's place in layers with experts, where `tensor` is a place of expert_tensor.
Place ExpertPlaceOf(const Parallel& parallel, uint32_t slot);

// Returns the axes tp, cp, dp and pp of layers without experts in ascending order of their strides.
// An axis that `order` lacks has size 1. parallel: must be valid.
std::vector<Axis> AxesOf(const Parallel& parallel);
// Returns the axes etp, ep, edp and pp of layers with experts in the same way.
std::vector<Axis> ExpertAxesOf(const Parallel& parallel);

// Returns the stage that has the layer, which must be below parallel.layers.
uint32_t StageOf(const Parallel& parallel, uint32_t layer);

}  // namespace rewire::state
