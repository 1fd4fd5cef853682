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
  std::vector<JsonNode> items;    // of an array or object, in the order of the text
  std::vector<std::string> keys;  // of an object's items
  std::vector<size_t> key_at;     // the places of the keys

  // Returns nullptr when the object has no such member.
  [[nodiscard]] const JsonNode* Find(const std::string& key) const;
};

class JsonText {
 public:
  // name: of the file, for errors.
  JsonText(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {}
  // Fails on text that is not JSON, nests deeper than 64 levels, or has an
  // object with a key twice or with more than 64 members.
  [[nodiscard]] absl::StatusOr<JsonNode> Parse() const;
  // Returns "NAME:LINE:COLUMN: what". at: a place in the text.
  [[nodiscard]] absl::Status Error(size_t at, const std::string& what) const;

 private:
  const std::string name_;
  const std::string text_;
};

}  // namespace rewire::state
