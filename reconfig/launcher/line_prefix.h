// Cuts a stream of bytes into lines and puts a prefix before each. One thread.
#pragma once

#include <string>
#include <string_view>

namespace rewire {

class LinePrefix {
 public:
  explicit LinePrefix(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the whole lines that `bytes` completes to *out. A line of more than kLongest bytes is
  // broken, so that a stream without line ends does not grow here.
  void Take(std::string_view bytes, std::string* out);
  // The last line, when it has no line end: it gets one.
  void End(std::string* out);

  static constexpr size_t kLongest = 1u << 20;

 private:
  const std::string prefix_;
  std::string partial_;
};

}  // namespace rewire
