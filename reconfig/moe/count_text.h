// Counts as text, for what cannot call CountWriter: comma-separated lines below the header
//   micro_batch,layer,source,expert,tokens
// of numbers, in any order; source is the device that the tokens are on. Lines that begin with #
// and empty ones are skipped. A pair of source and expert that has no line has no tokens. One
// thread.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/recording.h"

namespace rewire::moe {

struct CountTable {
  RecordedShape shape;
  std::vector<Recorded> records;  // by micro-batch, then layer
};

// name: of what is read, for errors, which name the line. shape: devices of a node and experts that
// are 0 are taken from the largest numbers that there are.
[[nodiscard]] absl::StatusOr<CountTable> ReadCountText(std::istream& in, const std::string& name,
                                                       const RecordedShape& shape);

}  // namespace rewire::moe
