// A parallel layout as a JSON file: the degrees of parallelism, ZeRO, the tensors, and the members
// in its slots. The format is docs/layouts.md. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/state/plan/plan.h"

namespace rewire::state {

struct LayoutFile {
  ParallelLayout layout;
  std::vector<Seat> seats;      // by slot
  bool seats_given = false;     // by the file; otherwise slot s has member s
  uint32_t slots_per_node = 0;  // 0: all slots are on one node
  [[nodiscard]] SeatedLayout seated() const { return {&layout, seats}; }
};

// text: the file's content. name: of the file. Errors name the line, the column, the field, its
// value, and what it must be.
absl::StatusOr<LayoutFile> ParseLayout(const std::string& name, const std::string& text);

// Returns the content of a file that gives the same layout. A tensor of each layer is written once
// per layer.
nlohmann::ordered_json ToJson(const LayoutFile& file);

}  // namespace rewire::state
