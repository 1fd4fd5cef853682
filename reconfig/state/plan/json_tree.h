// JSON text as a tree that knows where each value begins, so that an error can name the line and
// the column. For layout_file.cc. Pure.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rewire::state {

struct JsonNode {
  nlohmann::json
      value;      // null, a boolean, a number or a string; otherwise an empty array or object
  size_t at = 0;  // the place in the text
  std::vector<JsonNode> items;                            // of an array
  std::vector<std::pair<std::string, JsonNode>> members;  // of an object, in the order of the text
  std::vector<size_t> key_at;                             // of each member

  // Returns nullptr when the object has no such member.
  [[nodiscard]] const JsonNode* Find(const std::string& key) const;
};

class JsonText {
 public:
  // name: of the file, for errors.
  JsonText(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {}
  // Fails on text that is not JSON, nests deeper than 64 levels, or has a key twice.
  [[nodiscard]] absl::StatusOr<JsonNode> Parse() const;
  // Returns "NAME:LINE:COLUMN: what". at: a place in the text.
  [[nodiscard]] absl::Status Error(size_t at, const std::string& what) const;

 private:
  const std::string name_;
  const std::string text_;
};

}  // namespace rewire::state
