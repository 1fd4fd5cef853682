// The rows of a small comma-separated file with a header: lines that begin with # are comments,
// fields have no quotes. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// Each row by the names of the columns. Fails, naming the line, where a row has another number of
// fields than the header.
[[nodiscard]] absl::StatusOr<std::vector<std::map<std::string, std::string>>> ReadCsvRows(
    const std::string& path);

}  // namespace rewire::bench
