// The names of a transition's tensors by their number in the plan, for errors that an operator
// reads. Thread-safe: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace rewire::state {

using TensorNames = std::vector<std::string>;

// Returns "tensor NAME", or "tensor number N" if the name is not known.
inline std::string TensorText(const TensorNames& names, uint32_t tensor) {
  if (tensor < names.size()) return absl::StrCat("tensor ", names[tensor]);
  return absl::StrCat("tensor number ", tensor);
}

}  // namespace rewire::state
