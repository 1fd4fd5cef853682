// Inputs and outputs of a round of balancing: one layer of one micro-batch, forward or backward.
// Plain values: thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/abi/cuda_types.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// A contiguous piece of an expert's weights. The pieces of one expert add up to Shape::weight_bytes
// and are adjacent at a helper.
struct WeightPart {
  CUdeviceptr data = 0;
  uint64_t bytes = 0;
};

// The rows of an expert are adjacent, with experts in ascending order, in `x`, `errors` and `out`.
struct RoundInput {
  CUstream stream = nullptr;     // computes the layer; all data below is valid on this stream
  uint32_t layer = 0;            // use small numbers: the balancer keeps state per layer
  std::vector<uint32_t> tokens;  // rows of each own expert
  std::vector<std::vector<WeightPart>> weights;  // weights of each own expert
  // Version of the layer's current weights. A helper that has the weights from a round with the
  // same version gets no new copy. 0: the weights are copied whenever they are needed.
  uint64_t version = 0;
  CUdeviceptr x = 0;       // the layer's inputs
  CUdeviceptr errors = 0;  // backward: the gradients of the layer's outputs
  CUdeviceptr out = 0;     // forward: the outputs. Backward: the gradients of the inputs
};

// Rows of one expert that this device computes.
struct Segment {
  uint32_t expert = 0;  // the number in the node: owner * Shape::experts + own number
  uint32_t first = 0;   // first of the expert's rows
  uint32_t rows = 0;
  CUdeviceptr weights = 0;  // 0: this device's own weights
  CUdeviceptr x = 0;
  CUdeviceptr errors = 0;
  CUdeviceptr out = 0;
  CUdeviceptr grad = 0;  // for the gradients of received weights; 0: this device's own gradients
  // Backward: another device computed these rows in the forward round, so this device must
  // recompute the forward activations from `x`.
  bool recompute = false;
};

// Gradients of an own expert's weights that a helper computed.
struct Gradient {
  uint32_t expert = 0;  // the owner's number for the expert
  uint32_t helper = 0;
  CUdeviceptr data = 0;  // Shape::grad_bytes bytes
};

// The moves of a forward round; the backward round of the same layer and micro-batch needs them.
struct Moved {
  uint32_t layer = 0;
  std::vector<Stowed> given;
  std::vector<Stowed> received;
  std::vector<Stowed> dropped;   // announced to helpers, but the copies failed
  std::vector<uint8_t> dynamic;  // per own expert: whether it could have been moved
  std::vector<Stowed> planned;   // planned moves of the whole node
  bool stay = false;             // weights were expected to stay until the backward round
};

}  // namespace rewire::moe
