#include "reconfig/moe/plan/count_text.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {
namespace {

constexpr char kHeader[] = "micro_batch,layer,source,expert,tokens";

struct Row {
  uint64_t micro_batch = 0;
  uint32_t layer = 0, source = 0, expert = 0, tokens = 0;
  uint64_t line = 0;
  [[nodiscard]] auto Key() const { return std::tie(micro_batch, layer, source, expert); }
};

absl::Status Wrong(const std::string& name, uint64_t line, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ":", line, ": ", what));
}

absl::StatusOr<Row> ParseRow(absl::string_view text, const std::string& name, uint64_t line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ',');
  if (fields.size() != 5) {
    return Wrong(name, line, absl::StrCat("fields=", fields.size(), ": must be 5: ", kHeader));
  }
  Row row;
  row.line = line;
  if (!absl::SimpleAtoi(fields[0], &row.micro_batch)) {
    return Wrong(name, line,
                 absl::StrCat("micro_batch='", fields[0], "': must be a number below 2^64"));
  }
  static constexpr const char* kNames[] = {"layer", "source", "expert", "tokens"};
  uint32_t* const values[] = {&row.layer, &row.source, &row.expert, &row.tokens};
  for (size_t i = 0; i < 4; ++i) {
    if (absl::SimpleAtoi(fields[i + 1], values[i])) continue;
    return Wrong(name, line,
                 absl::StrCat(kNames[i], "='", fields[i + 1], "': must be a number below 2^32"));
  }
  return row;
}

absl::StatusOr<std::vector<Row>> ReadRows(std::istream& in, const std::string& name) {
  std::vector<Row> rows;
  std::string line;
  bool header = false;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    if (!header) {
      if (text != kHeader) {
        return Wrong(name, number, absl::StrCat("header='", text, "': must be ", kHeader));
      }
      header = true;
      continue;
    }
    REWIRE_ASSIGN_OR_RETURN(rows.emplace_back(), ParseRow(text, name, number));
  }
  if (in.bad())
    return absl::UnavailableError(absl::StrCat("read counts: file=", name, ": read error"));
  if (rows.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("read counts: file=", name, ": no rows after the header"));
  return rows;
}

}  // namespace

absl::StatusOr<CountTable> ReadCountText(std::istream& in, const std::string& name,
                                         const RecordedShape& shape) {
  REWIRE_ASSIGN_OR_RETURN(std::vector<Row> rows, ReadRows(in, name));
  CountTable table{shape, {}};
  uint32_t& per_node = table.shape.topology.per_node;
  uint64_t sources = 0, experts = 0;
  for (const Row& r : rows) {
    sources = std::max(sources, uint64_t{r.source} + 1);
    experts = std::max(experts, uint64_t{r.expert} + 1);
  }
  const uint32_t nodes = std::max(1U, shape.topology.nodes);
  if (per_node == 0) {
    per_node = static_cast<uint32_t>(std::min<uint64_t>((sources + nodes - 1) / nodes, UINT32_MAX));
  }
  if (table.shape.experts == 0) {
    table.shape.experts = static_cast<uint32_t>(std::min<uint64_t>(experts, UINT32_MAX));
  }
  if (const absl::Status status = Check(table.shape); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
  }
  const uint32_t devices = table.shape.topology.devices();
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.Key() != b.Key() ? a.Key() < b.Key() : a.line < b.line;
  });
  const Row* last = nullptr;
  for (const Row& r : rows) {
    if (r.source >= devices || r.expert >= table.shape.experts) {
      return Wrong(name, r.line,
                   absl::StrCat("source=", r.source, " expert=", r.expert, ": must be below ",
                                devices, " (devices) and ", table.shape.experts, " (experts)"));
    }
    if (last != nullptr && last->Key() == r.Key()) {
      return Wrong(name, r.line,
                   absl::StrCat("source=", r.source, " expert=", r.expert, ": already in line ",
                                last->line));
    }
    if (last == nullptr || last->micro_batch != r.micro_batch || last->layer != r.layer) {
      table.records.push_back({r.micro_batch, r.layer, Counts(devices, table.shape.experts)});
    }
    table.records.back().counts.at(r.source, r.expert) = r.tokens;
    last = &r;
  }
  return table;
}

}  // namespace rewire::moe
