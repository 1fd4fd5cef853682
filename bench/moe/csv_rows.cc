#include "bench/moe/csv_rows.h"

#include <fstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rewire::bench {

absl::StatusOr<std::vector<std::map<std::string, std::string>>> ReadCsvRows(
    const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("open ", path, ": cannot be read"));
  std::vector<std::string> header;
  std::vector<std::map<std::string, std::string>> rows;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    absl::StripTrailingAsciiWhitespace(&line);
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> fields = absl::StrSplit(line, ',');
    if (header.empty()) {
      header = std::move(fields);
      continue;
    }
    if (fields.size() != header.size()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", fields.size(),
                                                     " fields, the header has ", header.size()));
    }
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = std::move(fields[i]);
  }
  return rows;
}

}  // namespace rewire::bench
