#include "reconfig/state/plan/program_layout.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/state/plan/data_parallel.h"
#include "reconfig/state/plan/layout_file.h"

namespace rewire::state {
namespace {

absl::Status CheckProperties(const TensorShape& registered, const LogicalTensor& tensor) {
  const auto differs = [&](const char* field, const auto& here, const auto& there) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, ": ", field, "=", here,
                                                   ", and it is registered with ", field, "=",
                                                   there));
  };
  if (tensor.element_bytes != registered.element_bytes) {
    return differs("element_bytes", tensor.element_bytes, registered.element_bytes);
  }
  if (tensor.change == registered.change) return absl::OkStatus();
  constexpr const char* kChanges[] = {"constant", "volatile", "transient"};
  return differs("change", kChanges[static_cast<size_t>(tensor.change)],
                 kChanges[static_cast<size_t>(registered.change)]);
}

}  // namespace

absl::StatusOr<ParallelLayout> ProgramLayout(std::span<const TensorShape> tensors, uint32_t slots,
                                             const std::string& text) {
  const std::string name = absl::StrCat("layout of ", slots, " slots");
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
  };
  const absl::StatusOr<LayoutFile> file = ParseLayout(name, text);
  if (!file.ok()) return file.status();
  if (file->seats_given) {
    return wrong("members: must be left out, because the job gives members their slots");
  }
  if (file->layout.slots() != slots) {
    return wrong(absl::StrCat("parallel: has ", file->layout.slots(), " slots: must have ", slots));
  }
  std::unordered_map<std::string, const LogicalTensor*> described;
  for (const LogicalTensor& tensor : file->layout.tensors()) described[tensor.name] = &tensor;
  std::vector<LogicalTensor> all;
  for (const TensorShape& registered : tensors) {
    const auto found = described.find(registered.name);
    if (registered.division == Division::kSharded) {
      return wrong(absl::StrCat("tensor ", registered.name,
                                ": is rewireSharded: must be rewireByLayout, or replicated"));
    }
    if (registered.division != Division::kByLayout) {
      if (found != described.end()) {
        return wrong(absl::StrCat("tensor ", registered.name,
                                  ": is replicated: must be registered as rewireByLayout"));
      }
      all.push_back(WholeOnEachSlot(registered));
      continue;
    }
    if (found == described.end()) {
      return wrong(absl::StrCat("tensor ", registered.name, ": is registered, and missing here"));
    }
    if (absl::Status status = CheckProperties(registered, *found->second); !status.ok()) {
      return wrong(std::string(status.message()));
    }
    all.push_back(*found->second);
    described.erase(found);
  }
  for (const LogicalTensor& tensor : file->layout.tensors()) {
    if (!described.contains(tensor.name)) continue;
    return wrong(absl::StrCat("tensor ", tensor.name, ": is not registered"));
  }
  return ParallelLayout::Make(file->layout.parallel(), file->layout.zero(), std::move(all));
}

}  // namespace rewire::state
