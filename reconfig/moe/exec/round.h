// A round of balancing, one layer of one micro-batch forward or backward: its inputs and outputs,
// the state that all parts of the balancer read, and the rows that this device computes. Values and
// RoundRows are thread-compatible; Check() is thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/moe/exec/lent_slots.h"
#include "reconfig/moe/exec/makespan.h"
#include "reconfig/moe/exec/shape.h"

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
  std::vector<PlacedMove> given;
  std::vector<PlacedMove> received;
  std::vector<PlacedMove> dropped;  // announced to helpers, but the copies failed
  std::vector<uint8_t> dynamic;     // per own expert: whether it could have been moved
  std::vector<PlacedMove> planned;  // planned moves of the whole node
  bool stay = false;                // weights were expected to stay until the backward round
};

// A planned move of an own expert to a helper.
struct Give {
  PlacedMove placed;
  enum { kPending, kGiven, kKept, kDropped } state = kPending;  // kDropped: the copy failed
};

// The round in progress.
struct Round {
  uint64_t key = 0;  // 2 * number + backward; 0: before the first round
  RoundInput input;
  std::vector<uint64_t> offsets;  // the first row of each own expert

  void Begin(const RoundInput& next, bool backward);
  [[nodiscard]] bool backward() const { return key % 2 != 0; }
  // expert: the number in the node.
  [[nodiscard]] Weights WeightsOf(uint32_t expert) const {
    return {input.layer, expert, input.version};
  }
};

// Checks the input of the round after `last`; an error names the member and its range. moved: what
// the forward round moved, for a backward round, or else nullptr.
[[nodiscard]] absl::Status Check(const RoundInput& input, const Moved* moved, const Round& last,
                                 const Shape& shape, uint32_t rank);

// The rows of a round that this device computes, in their order: own rows that no helper computes,
// and turns for the received rows. Owned by the thread that makes the balancer's calls.
class RoundRows {
 public:
  RoundRows(const Shape& shape, uint32_t rank) : shape_(shape), rank_(rank) {}

  // Divides the rows of the experts that no plan moves: some to compute at once, the others later.
  // dynamic: 1 for each own expert that may be moved.
  void Begin(const Round& round, const std::vector<uint8_t>& dynamic);
  [[nodiscard]] const std::vector<Segment>& statics() const { return statics_; }
  [[nodiscard]] uint64_t static_rows() const { return static_rows_; }

  // Adds the rows of the other experts that no helper computes. In a backward round, rows that the
  // forward round moved are a segment of their own.
  void Close(const Round& round, std::span<const Give> gives);
  // Orders own and received rows. planned: the node's moves, with whose arrivals in a round at
  // `speeds` the received rows are expected. stay: see Arrivals().
  void Order(const Round& round, std::span<const PlacedMove> received,
             const std::vector<PlacedMove>& planned, bool stay, const Speeds& speeds);

  // The number, among the received, of the rows that the turn before computed; nullopt: own rows.
  [[nodiscard]] std::optional<uint32_t> LastReceived() const;
  [[nodiscard]] bool done() const { return turn_ == turns_.size(); }
  // Takes the next turn if it computes received rows, and returns their number.
  [[nodiscard]] std::optional<uint32_t> TakeReceived();
  // Takes all turns with own rows until the next received rows.
  [[nodiscard]] std::vector<Segment> TakeOwn();

 private:
  [[nodiscard]] Segment OwnSegment(const Round& round, uint32_t expert, uint32_t first,
                                   uint32_t rows) const;
  void AddKept(const Round& round, uint32_t expert, std::span<const Give> gives);

  const Shape shape_;
  const uint32_t rank_;
  std::vector<uint8_t> dynamic_;
  std::vector<Segment> statics_;
  std::vector<Segment> own_;  // the other own segments, in the order of computation
  uint64_t static_rows_ = 0;
  std::vector<Turn> turns_;
  size_t turn_ = 0;  // the next turn
};

}  // namespace rewire::moe
