// Reads the rows of a small comma-separated file with a header. Lines that begin with # are
// comments, and fields have no quotes. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// Returns each row as a map from column name to field. Fails if a row and the header have different
// numbers of fields; the error names the line.
[[nodiscard]] absl::StatusOr<std::vector<std::map<std::string, std::string>>> ReadCsvRows(
    const std::string& path);

}  // namespace rewire::bench
