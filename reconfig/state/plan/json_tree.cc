#include "reconfig/state/plan/json_tree.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace rewire::state {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxMembers = 64;

// Counts the characters that the parser has read.
class Counting {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  Counting(const char* at, size_t* read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  Counting& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  bool operator==(const Counting& other) const { return at_ == other.at_; }
  bool operator!=(const Counting& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* read_;
};

// Makes the tree from the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const std::string& text, const size_t* read) : text_(text), read_(read) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool v) override { return Add(v); }
  bool number_integer(number_integer_t v) override { return Add(v); }
  bool number_unsigned(number_unsigned_t v) override { return Add(v); }
  bool number_float(number_float_t v, const string_t& /*text*/) override { return Add(v); }
  bool string(string_t& v) override { return Add(v); }
  bool binary(binary_t& /*v*/) override { return Fail(Begin(), "binary data is not JSON"); }
  bool start_object(size_t /*size*/) override { return Open(nlohmann::json::object()); }
  bool start_array(size_t /*size*/) override { return Open(nlohmann::json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& v) override {
    key_at_ = Begin();
    key_ = v;
    if (open_.back()->keys.size() >= kMaxMembers) {
      return Fail(key_at_, absl::StrCat("an object has more than ", kMaxMembers, " members"));
    }
    if (open_.back()->Find(v) != nullptr) return Fail(key_at_, absl::StrCat("\"", v, "\" twice"));
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return Fail(Begin(), "is not JSON");
  }

  JsonNode root;
  size_t wrong_at = 0;
  std::string wrong;  // empty: nothing

 private:
  // Returns the begin of the token that was read last.
  size_t Begin() {
    size_t at = end_;
    while (at < text_.size() &&
           std::string_view(" \t\r\n,:").find(text_[at]) != std::string_view::npos) {
      ++at;
    }
    // The parser has read one character more than a number has.
    end_ = std::max(at, *read_ == 0 ? 0 : *read_ - 1);
    const bool number =
        at < text_.size() &&
        (text_[at] == '-' || absl::ascii_isdigit(static_cast<unsigned char>(text_[at])));
    if (!number) end_ = std::max(end_, *read_);
    return at;
  }
  bool Fail(size_t at, std::string what) {
    wrong_at = at;
    wrong = std::move(what);
    return false;
  }
  JsonNode* Put(nlohmann::json value) {
    JsonNode node;
    node.at = Begin();
    node.value = std::move(value);
    if (open_.empty()) {
      root = std::move(node);
      return &root;
    }
    JsonNode* const in = open_.back();
    if (in->value.is_object()) {
      in->keys.push_back(key_);
      in->key_at.push_back(key_at_);
    }
    in->items.push_back(std::move(node));
    return &in->items.back();
  }
  template <typename T>
  bool Add(T value) {
    Put(std::move(value));
    return true;
  }
  bool Open(nlohmann::json empty) {
    JsonNode* const node = Put(std::move(empty));
    open_.push_back(node);
    return open_.size() <= kMaxDepth ||
           Fail(node->at, absl::StrCat("nests deeper than ", kMaxDepth, " levels"));
  }
  bool Close() {
    Begin();
    open_.pop_back();
    return true;
  }

  const std::string& text_;
  const size_t* const read_;
  std::vector<JsonNode*> open_;  // from the outermost; nothing is added to an outer one meanwhile
  std::string key_;
  size_t key_at_ = 0;
  size_t end_ = 0;
};

}  // namespace

const JsonNode* JsonNode::Find(const std::string& key) const {
  const auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &items[static_cast<size_t>(at - keys.begin())];
}

absl::StatusOr<JsonNode> JsonText::Parse() const {
  size_t read = 0;
  Builder builder(text_, &read);
  const Counting begin(text_.data(), &read);
  const Counting end(text_.data() + text_.size(), &read);
  if (nlohmann::json::sax_parse(begin, end, &builder) && builder.wrong.empty()) {
    return std::move(builder.root);
  }
  return Error(builder.wrong_at, builder.wrong.empty() ? "is not JSON" : builder.wrong);
}

absl::Status JsonText::Error(size_t at, const std::string& what) const {
  at = std::min(at, text_.size());
  const auto from = text_.begin();
  const auto to = from + static_cast<std::ptrdiff_t>(at);
  const auto line = 1 + std::count(from, to, '\n');
  const size_t newline = at == 0 ? std::string::npos : text_.rfind('\n', at - 1);
  const size_t column = newline == std::string::npos ? at + 1 : at - newline;
  return absl::InvalidArgumentError(absl::StrCat(name_, ":", line, ":", column, ": ", what));
}

}  // namespace rewire::state
