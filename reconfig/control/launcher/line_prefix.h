// Splits a stream of bytes into lines and puts a prefix before each. Thread-compatible.
#pragma once

#include <string>
#include <string_view>

namespace rewire::control {

class LinePrefix {
 public:
  explicit LinePrefix(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that `bytes` completes to *out. Breaks a line after kLongest bytes, so that a
  // stream without line ends needs no more memory.
  void Take(std::string_view bytes, std::string* out);
  // Appends the last line with a line end, if the stream ended without one.
  void End(std::string* out);

  static constexpr size_t kLongest = 1u << 20;

 private:
  const std::string prefix_;
  std::string partial_;
};

}  // namespace rewire::control
