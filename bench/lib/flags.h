// Parses command-line flags strictly: an unknown or repeated flag, a missing or malformed value, or
// a value out of range is an error that names the flag. For benchmarks' main(). Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rewire::bench {

// Parses "64", "8K", "32M", "1G": binary multiples, as in nccl-tests.
[[nodiscard]] absl::StatusOr<int64_t> ParseSize(std::string_view text);

class Flags {
 public:
  Flags(std::string program, std::string summary);

  // names: "-b,--minbytes" or one of the two. `target` holds the default and must outlive Parse().
  void Int(std::string_view names, int64_t* target, int64_t min, int64_t max, std::string text);
  void Size(std::string_view names, int64_t* target, int64_t min, int64_t max, std::string text);
  void Real(std::string_view names, double* target, double min, double max, std::string text);
  // One of `allowed`; any text if `allowed` is empty.
  void Text(std::string_view names, std::string* target, std::vector<std::string> allowed,
            std::string text);
  // The flag takes no value.
  void Switch(std::string_view names, bool* target, std::string text);

  // Also accepts --name=value. After an error the targets must not be used.
  [[nodiscard]] absl::Status Parse(const std::vector<std::string>& arguments);
  // For main(): --help prints the usage and exits with 0; an error is printed and exits with 2.
  void ParseOrExit(int argc, char** argv);
  // Returns whether the flag was on the command line, by either name.
  [[nodiscard]] bool Given(std::string_view name) const;
  [[nodiscard]] std::string Usage() const;

 private:
  struct Flag {
    std::vector<std::string> names;
    std::string text;
    bool takes_value = true;
    bool given = false;
    std::function<absl::Status(std::string_view value)> set;  // errors without the flag's name
  };

  Flag& Add(std::string_view names, std::string text);
  // Returns the index in flags_, or flags_.size() for an unknown flag.
  [[nodiscard]] size_t Find(std::string_view name) const;

  const std::string program_;
  const std::string summary_;
  std::vector<Flag> flags_;
};

}  // namespace rewire::bench
