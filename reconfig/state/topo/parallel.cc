#include "reconfig/state/topo/parallel.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rewire::state {
namespace {

constexpr std::array<const char*, 5> kAxes = {"tp", "cp", "ep", "dp", "pp"};
constexpr size_t kStages = 4;  // of kAxes
constexpr uint64_t kMaxSlots = 1 << 18;
constexpr uint32_t kMaxLayers = 1 << 16;

// The sizes of the axes in the order of kAxes, or the coordinates of a slot in them.
using Sizes = std::array<uint32_t, kAxes.size()>;

Sizes SizesOf(const Parallel& p) { return {p.tensor, p.context, 1, p.data, p.pipeline}; }

Sizes ExpertSizesOf(const Parallel& p) {
  return {p.expert_tensor, 1, p.expert, p.expert_data(), p.pipeline};
}

// Returns the numbers of the axes in kAxes, that of the fastest first; kAxes.size(): unknown.
std::vector<size_t> NumbersOf(const std::string& order) {
  std::vector<size_t> axes;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(order, '-'))) {
    axes.push_back(
        static_cast<size_t>(std::find(kAxes.begin(), kAxes.end(), name) - kAxes.begin()));
  }
  return axes;
}

Place PlaceIn(const Parallel& p, const Sizes& sizes, uint32_t slot) {
  Sizes at{};
  uint32_t shard = 0;
  uint32_t stride = 1;  // of context and data, the axes that leave the same elements on a slot
  for (const size_t axis : NumbersOf(p.order)) {
    at[axis] = slot % sizes[axis];
    slot /= sizes[axis];
    if (axis != 1 && axis != 3) continue;
    shard += at[axis] * stride;
    stride *= sizes[axis];
  }
  return {at[0], at[2], at[kStages], shard};
}

// Returns the axes that have a name. names: in the order of kAxes, nullptr for an axis that the
// layers do not have, whose size is 1.
std::vector<Axis> AxesIn(const Parallel& p, const Sizes& sizes,
                         const std::array<const char*, kAxes.size()>& names) {
  std::vector<size_t> numbers = NumbersOf(p.order);
  for (size_t axis = 0; axis < kAxes.size(); ++axis) {
    if (std::find(numbers.begin(), numbers.end(), axis) == numbers.end()) numbers.push_back(axis);
  }
  std::vector<Axis> axes;
  uint32_t stride = 1;
  for (const size_t axis : numbers) {
    if (names[axis] != nullptr) axes.push_back({names[axis], sizes[axis], stride});
    stride *= sizes[axis];
  }
  return axes;
}

// The distance in slots between neighbours in the pipeline.
uint64_t StrideOfStages(const std::vector<size_t>& axes, const Sizes& sizes) {
  uint64_t stride = 1;
  for (size_t i = 0; i < axes.size() && axes[i] != kStages; ++i) stride *= sizes[axes[i]];
  return stride;
}

absl::Status Wrong(const std::string& field, const std::string& value, const std::string& must) {
  return absl::InvalidArgumentError(absl::StrCat("parallel: ", field, "=", value, ": ", must));
}

absl::Status CheckOrder(const Parallel& p) {
  const std::vector<size_t> axes = NumbersOf(p.order);
  std::array<int, kAxes.size() + 1> count{};
  for (const size_t axis : axes) ++count[axis];
  if (count.back() > 0 || *std::max_element(count.begin(), count.end()) > 1) {
    return Wrong("order", p.order, "must have each of tp, cp, ep, dp, pp at most once");
  }
  const Sizes sizes = SizesOf(p);
  const Sizes of_experts = ExpertSizesOf(p);
  for (size_t axis = 0; axis < kAxes.size(); ++axis) {
    const uint32_t places = std::max(sizes[axis], of_experts[axis]);
    if (places > 1 && count[axis] == 0) {
      return Wrong("order", p.order,
                   absl::StrCat("lacks ", kAxes[axis], ", which has ", places, " places"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSplit(const Parallel& p) {
  if (p.layers > kMaxLayers) {
    return Wrong("layers", absl::StrCat(p.layers), absl::StrCat("must be at most ", kMaxLayers));
  }
  const uint64_t runs = uint64_t{p.pipeline} * p.virtual_stages;
  if (p.split.empty()) {
    if (p.layers % runs == 0) return absl::OkStatus();
    return Wrong("layers", absl::StrCat(p.layers),
                 absl::StrCat("must be a multiple of pipeline * virtual_stages = ", runs,
                              ", or `split` must give the number of each run"));
  }
  if (p.split.size() != runs) {
    return Wrong("split", absl::StrCat(p.split.size(), " numbers"),
                 absl::StrCat("must be pipeline * virtual_stages = ", runs));
  }
  const uint64_t sum = std::accumulate(p.split.begin(), p.split.end(), uint64_t{0});
  if (sum == p.layers) return absl::OkStatus();
  return Wrong("split", absl::StrCat("a sum of ", sum),
               absl::StrCat("must be layers = ", p.layers));
}

}  // namespace

absl::Status Check(const Parallel& p) {
  uint64_t slots = 1;
  for (const auto& [name, size] : {std::pair<const char*, uint32_t>{"tensor", p.tensor},
                                   {"context", p.context},
                                   {"data", p.data},
                                   {"pipeline", p.pipeline},
                                   {"expert", p.expert},
                                   {"expert_tensor", p.expert_tensor},
                                   {"virtual_stages", p.virtual_stages}}) {
    if (size < 1 || size > kMaxSlots) {
      return Wrong(name, absl::StrCat(size), absl::StrCat("must be in [1, ", kMaxSlots, "]"));
    }
  }
  for (const uint32_t size : {p.tensor, p.context, p.data, p.pipeline}) {
    slots *= size;
    if (slots > kMaxSlots) {
      return Wrong("tensor * context * data * pipeline", absl::StrCat("more than ", kMaxSlots),
                   absl::StrCat("must be at most ", kMaxSlots));
    }
  }
  if (p.spare > kMaxSlots - slots) {
    return Wrong("spare", absl::StrCat(p.spare),
                 absl::StrCat("must be at most ", kMaxSlots - slots, " with ", slots, " others"));
  }
  const uint64_t stage = slots / p.pipeline;
  const uint64_t experts = uint64_t{p.expert} * p.expert_tensor;
  if (stage % experts != 0) {
    return Wrong("expert * expert_tensor", absl::StrCat(experts),
                 absl::StrCat("must divide tensor * context * data = ", stage));
  }
  if (absl::Status status = CheckOrder(p); !status.ok()) return status;
  return CheckSplit(p);
}

absl::Status CheckExperts(const Parallel& p) {
  if (p.pipeline == 1) return absl::OkStatus();
  const std::vector<size_t> axes = NumbersOf(p.order);
  if (StrideOfStages(axes, SizesOf(p)) == StrideOfStages(axes, ExpertSizesOf(p))) {
    return absl::OkStatus();
  }
  return Wrong("order", p.order, "gives expert layers other stages than the other layers: pp last");
}

Place PlaceOf(const Parallel& p, uint32_t slot) { return PlaceIn(p, SizesOf(p), slot); }

Place ExpertPlaceOf(const Parallel& p, uint32_t slot) { return PlaceIn(p, ExpertSizesOf(p), slot); }

std::vector<Axis> AxesOf(const Parallel& p) {
  return AxesIn(p, SizesOf(p), {"tp", "cp", nullptr, "dp", "pp"});
}

std::vector<Axis> ExpertAxesOf(const Parallel& p) {
  return AxesIn(p, ExpertSizesOf(p), {"etp", nullptr, "ep", "edp", "pp"});
}

uint32_t StageOf(const Parallel& p, uint32_t layer) {
  const uint32_t runs = p.pipeline * p.virtual_stages;
  if (p.split.empty()) return layer / (p.layers / runs) % p.pipeline;
  uint32_t run = 0;
  for (uint32_t before = 0; before + p.split[run] <= layer; ++run) before += p.split[run];
  return run % p.pipeline;
}

}  // namespace rewire::state
