// Divides a model's tensors over the slots of a parallel world: the pieces of each slot, and where
// they lie in the slot's memory.
//
// The division is a function of the parallel degrees and the tensors alone, so every member derives
// the same. Immutable, and thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/state/topo/chunk.h"
#include "reconfig/state/topo/logical_tensor.h"
#include "reconfig/state/topo/parallel.h"

namespace rewire::state {

// A part of a logical tensor in a slot's memory. Element x of the chunk is at
// offset + sum of (x[d] - chunk.begin[d]) * strides[d], in elements of the slot's tensor.
struct Piece {
  Chunk chunk;
  uint64_t offset = 0;
  std::array<uint64_t, kMaxDims> strides{};
  bool operator==(const Piece&) const = default;
};

class ParallelLayout {
 public:
  // Fails with an error that names the tensor or the field, its value, and what it must be.
  static absl::StatusOr<ParallelLayout> Make(Parallel parallel, Zero zero,
                                             std::vector<LogicalTensor> tensors);

  [[nodiscard]] const Parallel& parallel() const { return parallel_; }
  [[nodiscard]] const Zero& zero() const { return zero_; }
  [[nodiscard]] const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  [[nodiscard]] uint32_t slots() const { return parallel_.slots(); }

  // Returns the pieces of tensor number `tensor` in `slot`, which share no element. Empty: the slot
  // has nothing of the tensor.
  [[nodiscard]] std::vector<Piece> PiecesOf(size_t tensor, uint32_t slot) const;
  // Returns those of the elements [part.begin, part.end) of the slot's memory. Their offsets are
  // relative to part.begin.
  [[nodiscard]] std::vector<Piece> PiecesOf(size_t tensor, uint32_t slot, const Box& part) const;
  // Returns the length of the slot's memory, with its padding. 0: the slot has nothing.
  [[nodiscard]] uint64_t ElementsOf(size_t tensor, uint32_t slot) const;
  // Returns the shape of the slot's memory: one size if ZeRO divides the tensor, or the slot has
  // nothing.
  [[nodiscard]] std::vector<uint64_t> ShapeOf(size_t tensor, uint32_t slot) const;
  // Returns whether slots may have different parts of a tensor.
  [[nodiscard]] bool Divides(size_t tensor) const;
  // Returns a number below Classes(tensor). Slots with the same number have the same pieces.
  // nullopt: the slot has nothing, because of its stage.
  [[nodiscard]] std::optional<uint32_t> ClassOf(size_t tensor, uint32_t slot) const;
  [[nodiscard]] uint32_t Classes(size_t tensor) const;

  // Tensors of one kind have the same pieces in each class, and the same Change. With the same
  // StageOfLayer() they also have the same class in each slot.
  using Kind = std::tuple<std::vector<uint64_t>, Role, int32_t, std::vector<uint64_t>, uint64_t,
                          bool, int32_t, Stages, Change, size_t>;
  [[nodiscard]] Kind KindOf(size_t tensor) const;
  // Returns the stage of a tensor that belongs to a layer; 0 for other tensors.
  [[nodiscard]] uint32_t StageOfLayer(size_t tensor) const;

 private:
  // A slot's part of a tensor before ZeRO: parts with equal sizes in the logical tensor and in the
  // slot's own, whose shape is `shape`.
  struct Local {
    std::vector<uint64_t> shape;
    std::vector<std::pair<Chunk, Chunk>> parts;  // logical, own
    [[nodiscard]] uint64_t elements() const { return Chunk::Whole(shape).elements(); }
  };
  // Stage, tensor-parallel and expert-parallel place.
  using BufferKey = std::tuple<uint32_t, uint32_t, uint32_t>;
  // The elements [begin, end) of the own tensor, at `offset` in memory.
  struct Interval {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t offset = 0;
  };

  ParallelLayout(Parallel parallel, Zero zero, std::vector<LogicalTensor> tensors);
  [[nodiscard]] absl::Status CheckBlocks() const;
  [[nodiscard]] bool Divided(const LogicalTensor& tensor) const;
  [[nodiscard]] uint32_t Shards(const LogicalTensor& tensor) const;
  [[nodiscard]] const Place& PlaceIn(const LogicalTensor& tensor, uint32_t slot) const {
    return (tensor.experts < 0 ? places_ : expert_places_)[slot];
  }
  [[nodiscard]] bool OnStage(const LogicalTensor& tensor, uint32_t stage) const;
  // Returns whether the slot has a part of the tensor, which may be empty.
  [[nodiscard]] bool On(const LogicalTensor& tensor, uint32_t slot) const;
  [[nodiscard]] Local LocalOf(const LogicalTensor& tensor, const Place& place) const;
  [[nodiscard]] std::vector<Interval> IntervalsOf(size_t tensor, const Local& local,
                                                  const Place& place) const;
  [[nodiscard]] std::vector<Interval> InBuffer(size_t tensor, const Local& local,
                                               const Place& place) const;
  absl::Status PlaceInBuffers();
  [[nodiscard]] bool InABuffer(const LogicalTensor& tensor) const;
  // Return whether the pieces of a tensor differ between tensor-parallel places, or stages.
  [[nodiscard]] bool ByTensorPlace(const LogicalTensor& tensor) const;
  [[nodiscard]] bool ByStage(const LogicalTensor& tensor) const;

  Parallel parallel_;
  Zero zero_;
  std::vector<LogicalTensor> tensors_;
  std::vector<Place> places_;  // by slot
  std::vector<Place> expert_places_;
  std::vector<uint32_t> stages_;  // by layer
  // The first element of a tensor in its buffer, by its number; the elements of a buffer, by name.
  std::map<std::pair<size_t, BufferKey>, uint64_t> begins_;
  std::map<std::pair<std::string, BufferKey>, uint64_t> buffers_;
};

}  // namespace rewire::state
