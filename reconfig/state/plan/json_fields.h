// Reads the fields of JSON objects into variables, and keeps the first error. For layout_file.cc.
// Owned by one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/state/plan/json_tree.h"

namespace rewire::state {

template <typename Enum>
struct EnumName {
  const char* name;
  Enum value;
};

template <typename Enum, size_t kCount>
std::string NameOf(const EnumName<Enum> (&names)[kCount], Enum value) {
  for (const EnumName<Enum>& each : names) {
    if (each.value == value) return each.name;
  }
  return "";
}

// One object. A field that is missing leaves its variable as it is. After an error nothing is read.
class JsonFields {
 public:
  JsonFields(const JsonText* text, const JsonNode* node, absl::Status* wrong)
      : text_(text), node_(node), wrong_(wrong) {
    if (!node->value.is_object()) Fail(node->at, "must be an object");
  }
  [[nodiscard]] size_t at() const { return node_->at; }
  [[nodiscard]] bool IsNumber(const std::string& key) const {
    const JsonNode* const node = node_->Find(key);
    return node != nullptr && node->value.is_number();
  }
  void Required(const std::string& key) {
    if (node_->Find(key) == nullptr) Fail(node_->at, absl::StrCat("\"", key, "\" is missing"));
  }
  template <typename T>
  void Number(const std::string& key, T* value, T least = std::numeric_limits<T>::min()) {
    if (const JsonNode* node = Take(key)) NumberOf(key, *node, value, least);
  }
  template <typename T>
  void Numbers(const std::string& key, std::vector<T>* values) {
    ForEach(key, [&](const JsonNode& node) {
      values->emplace_back();
      NumberOf(key, node, &values->back(), std::numeric_limits<T>::min());
    });
  }
  void Boolean(const std::string& key, bool* value) {
    const JsonNode* const node = Take(key);
    if (node == nullptr) return;
    if (!node->value.is_boolean()) return Wrong(key, *node, "must be true or false");
    *value = node->value.get<bool>();
  }
  void Text(const std::string& key, std::string* value) {
    if (const JsonNode* node = Take(key)) TextOf(key, *node, value);
  }
  void Texts(const std::string& key, std::vector<std::string>* values) {
    ForEach(key, [&](const JsonNode& node) { TextOf(key, node, &values->emplace_back()); });
  }
  template <typename Enum, size_t kCount>
  void OneOf(const std::string& key, const EnumName<Enum> (&names)[kCount], Enum* value) {
    const JsonNode* const node = Take(key);
    if (node == nullptr) return;
    std::string known;
    for (const EnumName<Enum>& each : names) {
      if (node->value == each.name) {
        *value = each.value;
        return;
      }
      absl::StrAppend(&known, known.empty() ? "" : ", ", each.name);
    }
    Wrong(key, *node, "must be one of " + known);
  }
  void Object(const std::string& key, const std::function<void(JsonFields)>& read) {
    if (const JsonNode* node = Take(key)) read(JsonFields(text_, node, wrong_));
  }
  void Objects(const std::string& key, const std::function<void(JsonFields)>& read) {
    ForEach(key, [&](const JsonNode& node) { read(JsonFields(text_, &node, wrong_)); });
  }
  // Refuses fields that were not asked for.
  void End() {
    for (size_t i = 0; i < node_->keys.size() && wrong_->ok(); ++i) {
      const std::string& key = node_->keys[i];
      if (!known_.contains(key)) {
        Fail(node_->key_at[i],
             absl::StrCat("\"", key, "\": is not known: must be one of ", Known()));
      }
    }
  }

 private:
  const JsonNode* Take(const std::string& key) {
    known_.insert(key);
    return wrong_->ok() ? node_->Find(key) : nullptr;
  }
  void ForEach(const std::string& key, const std::function<void(const JsonNode&)>& visit) {
    const JsonNode* const node = Take(key);
    if (node == nullptr) return;
    if (!node->value.is_array()) return Wrong(key, *node, "must be an array");
    for (const JsonNode& item : node->items) {
      if (!wrong_->ok()) return;
      visit(item);
    }
  }
  template <typename T>
  void NumberOf(const std::string& key, const JsonNode& node, T* value, T least) {
    const auto most = std::numeric_limits<T>::max();
    bool fits = node.value.is_number_integer();
    if (fits && node.value.is_number_unsigned()) {
      const auto n = node.value.get<uint64_t>();
      fits = n <= static_cast<uint64_t>(most) && (least < T{} || n >= static_cast<uint64_t>(least));
    } else if (fits) {
      fits = std::is_signed_v<T> && node.value.get<int64_t>() >= static_cast<int64_t>(least);
    }
    if (!fits) {
      return Wrong(key, node, absl::StrCat("must be a whole number in [", least, ", ", most, "]"));
    }
    *value = node.value.get<T>();
  }
  void TextOf(const std::string& key, const JsonNode& node, std::string* value) {
    if (!node.value.is_string()) return Wrong(key, node, "must be a text");
    *value = node.value.get<std::string>();
  }
  void Wrong(const std::string& key, const JsonNode& node, const std::string& must) {
    const std::string value = node.value.is_array()    ? "an array"
                              : node.value.is_object() ? "an object"
                                                       : node.value.dump();
    Fail(node.at, absl::StrCat(key, "=", value, ": ", must));
  }
  void Fail(size_t at, const std::string& what) {
    if (wrong_->ok()) *wrong_ = text_->Error(at, what);
  }
  [[nodiscard]] std::string Known() const {
    std::string text;
    for (const std::string& key : known_) absl::StrAppend(&text, text.empty() ? "" : ", ", key);
    return text;
  }

  const JsonText* const text_;
  const JsonNode* const node_;
  absl::Status* const wrong_;
  std::set<std::string> known_;
};

}  // namespace rewire::state
