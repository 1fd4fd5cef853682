// The layout of a text that a program gave to a function of the C interface, with its tensors by
// name. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::elastic {

struct ParsedLayout {
  std::string text;
  state::ParallelLayout layout;
  std::unordered_map<std::string, size_t> tensors;
};

// Returns the thread's last layout if it had this text, or parses the text. Valid until the
// thread's next call.
absl::StatusOr<const ParsedLayout*> Parsed(const char* text);

}  // namespace rewire::elastic
