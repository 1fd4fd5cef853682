#include "reconfig/state/topo/parallel_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::state {
namespace {

// More blocks on each slot would be a plan of their own for nearly each element.
constexpr uint64_t kMaxBlocks = 1 << 16;
constexpr size_t kMaxTensors = 1 << 22;
constexpr uint64_t kMaxBuffer = uint64_t{1} << 50;
// The limit for all tensors on all slots, so that sums and differences of bytes fit in 64 bits.
constexpr uint64_t kMaxBytes = uint64_t{1} << 62;

uint64_t RoundUp(uint64_t number, uint64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

// The elements of one of `slots` equal parts, all but the last of which are full.
uint64_t PartSize(uint64_t length, uint64_t slots, uint64_t unit) {
  return RoundUp(length, slots * unit) / slots;
}

std::array<uint64_t, kMaxDims> RowMajor(const std::vector<uint64_t>& shape) {
  std::array<uint64_t, kMaxDims> strides{};
  uint64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

// Narrows one dimension of a chunk.
Chunk Along(Chunk chunk, size_t dim, uint64_t begin, uint64_t end) {
  chunk.begin[dim] = begin;
  chunk.end[dim] = end;
  return chunk;
}

}  // namespace

absl::StatusOr<ParallelLayout> ParallelLayout::Make(Parallel parallel, Zero zero,
                                                    std::vector<LogicalTensor> tensors) {
  if (absl::Status status = Check(parallel); !status.ok()) return status;
  if (absl::Status status = Check(zero); !status.ok()) return status;
  for (const LogicalTensor& tensor : tensors) {
    if (absl::Status status = Check(tensor, parallel); !status.ok()) return status;
  }
  if (tensors.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: ", tensors.size(), " tensors: must be at most ", kMaxTensors));
  }
  uint64_t left = kMaxBytes / parallel.slots();
  for (const LogicalTensor& tensor : tensors) {
    const uint64_t bytes = Chunk::Whole(tensor.shape).elements() * tensor.element_bytes;
    if (bytes > left) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout: tensor ", tensor.name, ": all tensors up to this one on ",
                       parallel.slots(), " slots have more than 2^62 bytes"));
    }
    left -= bytes;
  }
  ParallelLayout layout(std::move(parallel), zero, std::move(tensors));
  if (absl::Status status = layout.CheckBlocks(); !status.ok()) return status;
  if (absl::Status status = layout.PlaceInBuffers(); !status.ok()) return status;
  return layout;
}

ParallelLayout::ParallelLayout(Parallel parallel, Zero zero, std::vector<LogicalTensor> tensors)
    : parallel_(std::move(parallel)), zero_(zero), tensors_(std::move(tensors)) {
  for (uint32_t slot = 0; slot < parallel_.working(); ++slot) {
    places_.push_back(PlaceOf(parallel_, slot));
    expert_places_.push_back(ExpertPlaceOf(parallel_, slot));
  }
  places_.resize(slots());
  expert_places_.resize(slots());
  for (uint32_t layer = 0; layer < parallel_.layers; ++layer) {
    stages_.push_back(StageOf(parallel_, layer));
  }
}

absl::Status ParallelLayout::CheckBlocks() const {
  if (zero_.way != ZeroWay::kBlocks) return absl::OkStatus();
  for (const LogicalTensor& t : tensors_) {
    const uint64_t turn = Shards(t) * zero_.block;
    const uint64_t blocks = (Chunk::Whole(t.shape).elements() + turn - 1) / turn;
    if (!Divided(t) || blocks <= kMaxBlocks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("zero: block=", zero_.block, ": gives each slot ", blocks,
                     " blocks of tensor ", t.name, ": must give at most ", kMaxBlocks));
  }
  return absl::OkStatus();
}

bool ParallelLayout::Divided(const LogicalTensor& tensor) const {
  switch (tensor.role) {
    case Role::kOptimizer:
      return zero_.stage >= 1;
    case Role::kGradient:
      return zero_.stage >= 2;
    case Role::kParameter:
      return zero_.stage >= 3;
    case Role::kOther:
      return false;
  }
  return false;
}

uint32_t ParallelLayout::Shards(const LogicalTensor& tensor) const {
  return tensor.experts < 0 ? parallel_.context * parallel_.data : parallel_.expert_data();
}

bool ParallelLayout::OnStage(const LogicalTensor& tensor, uint32_t stage) const {
  const uint32_t last = parallel_.pipeline - 1;
  switch (tensor.stages) {
    case Stages::kLayer:
      return stages_[tensor.layer] == stage;
    case Stages::kFirst:
      return stage == 0;
    case Stages::kLast:
      return stage == last;
    case Stages::kFirstAndLast:
      return stage == 0 || stage == last;
    case Stages::kAll:
    case Stages::kEverySlot:
      return true;
  }
  return false;
}

bool ParallelLayout::On(const LogicalTensor& tensor, uint32_t slot) const {
  if (slot >= parallel_.working()) return tensor.stages == Stages::kEverySlot;
  return OnStage(tensor, PlaceIn(tensor, slot).pipeline);
}

ParallelLayout::Local ParallelLayout::LocalOf(const LogicalTensor& tensor,
                                              const Place& place) const {
  Local local;
  local.shape = tensor.shape;
  Chunk logical = Chunk::Whole(tensor.shape);
  if (tensor.experts >= 0) {
    const auto dim = static_cast<size_t>(tensor.experts);
    const uint64_t own = tensor.shape[dim] / parallel_.expert;
    logical = Along(logical, dim, place.expert * own, (place.expert + 1) * own);
    local.shape[dim] = own;
  }
  if (tensor.split.dim < 0) {
    local.parts.emplace_back(logical, Chunk::Whole(local.shape));
    return local;
  }
  const auto dim = static_cast<size_t>(tensor.split.dim);
  const uint64_t slots = tensor.experts < 0 ? parallel_.tensor : parallel_.expert_tensor;
  std::vector<uint64_t> sections = tensor.split.sections;
  if (sections.empty()) sections.push_back(tensor.shape[dim]);
  uint64_t from = 0;  // of the section in the logical tensor
  uint64_t at = 0;    // of the part in the slot's own tensor
  std::vector<std::pair<Chunk, uint64_t>> parts;
  for (const uint64_t length : sections) {
    const uint64_t size = PartSize(length, slots, tensor.split.unit);
    const uint64_t begin = std::min(length, place.tensor * size);
    const uint64_t end = std::min(length, begin + size);
    if (begin < end) parts.emplace_back(Along(logical, dim, from + begin, from + end), at);
    from += length;
    at += tensor.split.padded ? size : end - begin;
  }
  local.shape[dim] = at;
  for (const auto& [part, own] : parts) {
    local.parts.emplace_back(part,
                             Along(Chunk::Whole(local.shape), dim, own, own + part.size(dim)));
  }
  return local;
}

std::vector<ParallelLayout::Interval> ParallelLayout::IntervalsOf(size_t tensor, const Local& local,
                                                                  const Place& place) const {
  const LogicalTensor& t = tensors_[tensor];
  const uint64_t elements = local.elements();
  if (!Divided(t)) return {{0, elements, 0}};
  const uint64_t shards = Shards(t);
  const auto equal = [&](uint64_t length, uint64_t unit) {
    const uint64_t size = PartSize(length, shards, 1) * unit;
    const uint64_t begin = std::min(elements, place.shard * size);
    return std::vector<Interval>{{begin, std::min(elements, begin + size), 0}};
  };
  switch (zero_.way) {
    case ZeroWay::kRows:
      return elements == 0 ? std::vector<Interval>{}
                           : equal(local.shape[0], elements / local.shape[0]);
    case ZeroWay::kFlat:
      return equal(elements, 1);
    case ZeroWay::kBuffer:
      return InBuffer(tensor, local, place);
    case ZeroWay::kBlocks: {
      std::vector<Interval> blocks;
      const uint64_t turn = shards * zero_.block;
      for (uint64_t begin = place.shard * zero_.block, turns = 0; begin < elements;
           begin += turn, ++turns) {
        blocks.push_back({begin, std::min(elements, begin + zero_.block), turns * zero_.block});
      }
      return blocks;
    }
  }
  return {};
}

std::vector<ParallelLayout::Interval> ParallelLayout::InBuffer(size_t tensor, const Local& local,
                                                               const Place& place) const {
  const LogicalTensor& t = tensors_[tensor];
  const BufferKey key{place.pipeline, place.tensor, place.expert};
  const uint64_t at = begins_.at({tensor, key});
  const uint64_t size = PartSize(buffers_.at({t.buffer, key}), Shards(t), zero_.align);
  // In elements of the buffer.
  const uint64_t from = std::max(at, place.shard * size);
  const uint64_t to = std::min(at + local.elements(), (place.shard + 1) * size);
  if (from >= to) return {};
  return {{from - at, to - at, 0}};
}

absl::Status ParallelLayout::PlaceInBuffers() {
  if (zero_.stage == 0 || zero_.way != ZeroWay::kBuffer) return absl::OkStatus();
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors_[a].position < tensors_[b].position; });
  std::map<std::string, const LogicalTensor*> first;
  for (const size_t i : order) {
    const LogicalTensor& t = tensors_[i];
    if (!Divided(t)) continue;
    const LogicalTensor* before = first.emplace(t.buffer, &t).first->second;
    if ((before->experts < 0) != (t.experts < 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: tensor ", t.name, ": buffer=", t.buffer, ": also has tensor ", before->name,
          ": must have tensors of experts or of other layers, not both"));
    }
    const uint32_t parts = t.experts < 0 ? parallel_.tensor : parallel_.expert_tensor;
    const uint32_t experts = t.experts < 0 ? 1 : parallel_.expert;
    for (uint32_t part = 0; part < parts; ++part) {
      for (uint32_t expert = 0; expert < experts; ++expert) {
        const uint64_t elements = LocalOf(t, {part, expert, 0, 0}).elements();
        for (uint32_t stage = 0; stage < parallel_.pipeline; ++stage) {
          if (!OnStage(t, stage)) continue;
          const BufferKey key{stage, part, expert};
          uint64_t& used = buffers_[{t.buffer, key}];
          begins_[{i, key}] = RoundUp(used, zero_.align);
          used = RoundUp(used, zero_.align) + elements;
          if (used > kMaxBuffer) {
            return absl::InvalidArgumentError(absl::StrCat(
                "layout: buffer ", t.buffer, ": must have at most ", kMaxBuffer, " elements"));
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

std::vector<Piece> ParallelLayout::PiecesOf(size_t tensor, uint32_t slot) const {
  return PiecesOf(tensor, slot, {0, UINT64_MAX});
}

std::vector<Piece> ParallelLayout::PiecesOf(size_t tensor, uint32_t slot, const Box& part) const {
  const LogicalTensor& t = tensors_[tensor];
  const Place& place = PlaceIn(t, slot);
  if (!On(t, slot)) return {};
  const Local local = LocalOf(t, place);
  const Chunk whole = Chunk::Whole(local.shape);
  const std::array<uint64_t, kMaxDims> strides = RowMajor(local.shape);
  std::vector<Piece> pieces;
  for (Interval interval : IntervalsOf(tensor, local, place)) {
    const uint64_t end = interval.offset + (interval.end - interval.begin);
    const Box inside{std::max(part.begin, interval.offset), std::min(part.end, end)};
    if (inside.empty()) continue;
    interval.begin += inside.begin - interval.offset;
    interval.end -= end - inside.end;
    interval.offset = inside.begin - part.begin;
    std::vector<Chunk> own;
    AppendInterval(whole, interval.begin, interval.end, &own);
    for (const Chunk& chunk : own) {
      for (const auto& [logical, place_of_part] : local.parts) {
        const Chunk both = Intersection(chunk, place_of_part);
        if (both.empty()) continue;
        Piece piece{logical, 0, strides};
        uint64_t flat = 0;
        for (size_t d = 0; d < both.dims; ++d) {
          piece.chunk.begin[d] += both.begin[d] - place_of_part.begin[d];
          piece.chunk.end[d] = piece.chunk.begin[d] + both.size(d);
          flat += both.begin[d] * strides[d];
        }
        piece.offset = interval.offset + flat - interval.begin;
        pieces.push_back(piece);
      }
    }
  }
  return pieces;
}

uint64_t ParallelLayout::ElementsOf(size_t tensor, uint32_t slot) const {
  const LogicalTensor& t = tensors_[tensor];
  const Place& place = PlaceIn(t, slot);
  if (!On(t, slot)) return 0;
  const Local local = LocalOf(t, place);
  uint64_t elements = 0;
  for (const Interval& interval : IntervalsOf(tensor, local, place)) {
    elements = std::max(elements, interval.offset + (interval.end - interval.begin));
  }
  return elements;
}

std::vector<uint64_t> ParallelLayout::ShapeOf(size_t tensor, uint32_t slot) const {
  const LogicalTensor& t = tensors_[tensor];
  if (!On(t, slot) || Divided(t)) return {ElementsOf(tensor, slot)};
  return LocalOf(t, PlaceIn(t, slot)).shape;
}

bool ParallelLayout::Divides(size_t tensor) const {
  const LogicalTensor& t = tensors_[tensor];
  if (t.stages == Stages::kEverySlot) return false;
  const bool by_stage = parallel_.pipeline > 1 && t.stages != Stages::kAll;
  return by_stage || parallel_.spare > 0 || t.split.dim >= 0 || t.experts >= 0 || Divided(t);
}

std::optional<uint32_t> ParallelLayout::ClassOf(size_t tensor, uint32_t slot) const {
  const LogicalTensor& t = tensors_[tensor];
  const Place& place = PlaceIn(t, slot);
  if (!On(t, slot)) return std::nullopt;
  uint32_t number = ByTensorPlace(t) ? place.tensor : 0;
  if (t.experts >= 0) number = number * parallel_.expert + place.expert;
  if (!Divided(t)) return number;
  number = number * Shards(t) + place.shard;
  return ByStage(t) ? number * parallel_.pipeline + place.pipeline : number;
}

uint32_t ParallelLayout::Classes(size_t tensor) const {
  const LogicalTensor& t = tensors_[tensor];
  uint32_t count = 1;
  if (ByTensorPlace(t)) count = t.experts < 0 ? parallel_.tensor : parallel_.expert_tensor;
  if (t.experts >= 0) count *= parallel_.expert;
  if (Divided(t)) count *= Shards(t);
  return ByStage(t) ? count * parallel_.pipeline : count;
}

ParallelLayout::Kind ParallelLayout::KindOf(size_t tensor) const {
  const LogicalTensor& t = tensors_[tensor];
  const size_t in_buffer = InABuffer(t) ? tensor + 1 : 0;
  return {t.shape,        t.role,    t.split.dim, t.split.sections, t.split.unit,
          t.split.padded, t.experts, t.stages,    t.change,         in_buffer};
}

uint32_t ParallelLayout::StageOfLayer(size_t tensor) const {
  const LogicalTensor& t = tensors_[tensor];
  return t.stages == Stages::kLayer ? stages_[t.layer] : 0;
}

bool ParallelLayout::InABuffer(const LogicalTensor& t) const {
  return Divided(t) && zero_.way == ZeroWay::kBuffer;
}

// Another tensor-parallel place may have another place in the buffer.
bool ParallelLayout::ByTensorPlace(const LogicalTensor& t) const {
  return t.split.dim >= 0 || InABuffer(t);
}

bool ParallelLayout::ByStage(const LogicalTensor& t) const {
  return InABuffer(t) && (t.stages == Stages::kAll || t.stages == Stages::kFirstAndLast);
}

}  // namespace rewire::state
