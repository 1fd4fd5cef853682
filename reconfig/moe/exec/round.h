// What goes into a round of balancing and what comes out of it: one layer of one micro-batch,
// forward or backward. Plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/abi/cuda_types.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// A contiguous piece of an expert's weights; the pieces of one add up to Shape::weight_bytes and
// lie one behind the other at a helper.
struct WeightPart {
  CUdeviceptr data = 0;
  uint64_t bytes = 0;
};

// The rows of an expert lie together, experts in their order, in `x`, `errors` and `out` alike.
struct RoundInput {
  CUstream stream = nullptr;     // computes the layer; everything below is valid on it
  uint32_t layer = 0;            // small numbers: what was seen of each is remembered
  std::vector<uint32_t> tokens;  // of each own expert
  std::vector<std::vector<WeightPart>> weights;  // of each own expert
  // A number for the layer's weights as they are now. Where a helper has them from a round with the
  // same number they are not copied again. 0: they are copied whenever they are needed.
  uint64_t version = 0;
  CUdeviceptr x = 0;       // the layer's inputs
  CUdeviceptr errors = 0;  // backward: the gradients of its outputs
  CUdeviceptr out = 0;     // forward: its outputs. Backward: the gradients of its inputs
};

// Rows of one expert that this device computes.
struct Segment {
  uint32_t expert = 0;  // of the node: owner * Shape::experts + own number
  uint32_t first = 0;   // of the expert's rows
  uint32_t rows = 0;
  CUdeviceptr weights = 0;  // 0: this device's own
  CUdeviceptr x = 0;
  CUdeviceptr errors = 0;
  CUdeviceptr out = 0;
  CUdeviceptr grad = 0;  // for the gradients of received weights; 0: this device's own
  // Backward: another device computed these rows in the forward round; what is needed of that is
  // to be computed again, from x.
  bool recompute = false;
};

// What helpers made of own experts' weights.
struct Gradient {
  uint32_t expert = 0;  // own number
  uint32_t helper = 0;
  CUdeviceptr data = 0;  // Shape::grad_bytes
};

// What a forward round moved; the backward round of the same layer and micro-batch needs it.
struct Moved {
  uint32_t layer = 0;
  std::vector<Stowed> given;
  std::vector<Stowed> received;
  std::vector<Stowed> dropped;   // helpers were told to expect them, but the copies failed
  std::vector<uint8_t> dynamic;  // of each own expert: whether it could have been moved
  std::vector<Stowed> planned;   // in the whole node
  bool stay = false;             // weights were expected to be there yet in the backward round
};

}  // namespace rewire::moe
