#include "reconfig/state/topo/logical_tensor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/state/topo/chunk.h"

namespace rewire::state {
namespace {

constexpr uint64_t kMaxUnit = uint64_t{1} << 32;  // times the slots, or a row: no overflow

absl::Status CheckShape(const LogicalTensor& t) {
  if (t.shape.empty() || t.shape.size() > kMaxDims) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape has ", t.shape.size(), " dimensions: must be in [1, ", kMaxDims, "]"));
  }
  uint64_t elements = 1;
  for (const uint64_t size : t.shape) {
    if (size == 0 || size > kMaxElements / elements) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape has a size of ", size,
                       ": must be at least 1, and all elements at most ", kMaxElements));
    }
    elements *= size;
  }
  if (t.element_bytes >= 1 && t.element_bytes <= kMaxElementBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("element_bytes=", t.element_bytes, ": must be in [1, ", kMaxElementBytes, "]"));
}

absl::Status CheckSplit(const LogicalTensor& t) {
  const Split& split = t.split;
  const auto dims = static_cast<int32_t>(t.shape.size());
  if (split.dim < -1 || split.dim >= dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("split.dim=", split.dim, ": must be -1 or a dimension below ", dims));
  }
  if (split.dim < 0) {
    if (split == Split()) return absl::OkStatus();
    return absl::InvalidArgumentError("split.dim is missing: sections, unit and padded need it");
  }
  const uint64_t length = t.shape[static_cast<size_t>(split.dim)];
  uint64_t sum = 0;
  for (const uint64_t section : split.sections) {
    sum = section > length - sum ? length + 1 : sum + section;
    if (sum > length) break;
  }
  if (!split.sections.empty() && sum != length) {
    return absl::InvalidArgumentError(
        absl::StrCat("split.sections: their sum must be the dimension's size ", length));
  }
  // A padded part has up to one unit more than the dimension.
  const uint64_t row = Chunk::Whole(t.shape).elements() / length;
  if (split.unit < 1 || split.unit > kMaxUnit || split.unit > kMaxElements / row) {
    return absl::InvalidArgumentError(absl::StrCat("split.unit=", split.unit, ": must be in [1, ",
                                                   std::min(kMaxUnit, kMaxElements / row), "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckTensorOfExperts(const LogicalTensor& t, const Parallel& parallel) {
  if (t.experts == -1) return absl::OkStatus();
  const auto dims = static_cast<int32_t>(t.shape.size());
  if (t.experts < 0 || t.experts >= dims || t.experts == t.split.dim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "experts=", t.experts, ": must be -1 or a dimension below ", dims, " that is not split"));
  }
  const uint64_t count = t.shape[static_cast<size_t>(t.experts)];
  if (count % parallel.expert == 0) return CheckExperts(parallel);
  return absl::InvalidArgumentError(
      absl::StrCat(count, " experts: must be a multiple of parallel.expert=", parallel.expert));
}

absl::Status CheckLayer(const LogicalTensor& t, const Parallel& parallel) {
  const bool whole = t.split.dim < 0 && t.experts < 0 && t.role == Role::kOther;
  if (t.stages == Stages::kEverySlot && !whole) {
    return absl::InvalidArgumentError(
        "layer=every_slot: must have role=other, and neither split nor experts");
  }
  if (t.stages != Stages::kLayer || t.layer < parallel.layers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer=", t.layer, ": must be below parallel.layers=", parallel.layers));
}

}  // namespace

absl::Status Check(const LogicalTensor& t, const Parallel& parallel) {
  absl::Status status = CheckShape(t);
  if (status.ok()) status = CheckSplit(t);
  if (status.ok()) status = CheckTensorOfExperts(t, parallel);
  if (status.ok()) status = CheckLayer(t, parallel);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("layout: tensor ", t.name, ": ", status.message()));
}

absl::Status Check(const Zero& zero) {
  if (zero.stage > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("zero: stage=", zero.stage, ": must be in [0, 3]"));
  }
  for (const auto& [name, elements] :
       {std::pair<const char*, uint64_t>{"block", zero.block}, {"align", zero.align}}) {
    if (elements >= 1 && elements <= kMaxUnit) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("zero: ", name, "=", elements, ": must be in [1, ", kMaxUnit, "]"));
  }
  return absl::OkStatus();
}

}  // namespace rewire::state
