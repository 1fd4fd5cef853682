// Reads counts from text, for programs that cannot call CountWriter. The text has comma-separated
// lines of numbers, in any order, below the header
//   micro_batch,layer,source,expert,tokens
// `source` is the device that has the tokens. Empty lines and lines that begin with # are skipped.
// A pair of source and expert without a line has no tokens. Thread-compatible.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/plan/recording.h"

namespace rewire::moe {

struct CountTable {
  RecordedShape shape;
  std::vector<Recorded> records;  // sorted by micro-batch, then layer
};

// name: the input's name for errors, which also name the line. shape: per_node and experts that are
// 0 are taken from the largest numbers in the text.
[[nodiscard]] absl::StatusOr<CountTable> ReadCountText(std::istream& in, const std::string& name,
                                                       const RecordedShape& shape);

}  // namespace rewire::moe
