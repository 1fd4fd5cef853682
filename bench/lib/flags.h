// Strict command-line flags: an unknown flag, a missing or malformed value, a value out of range or
// a flag given twice is an error that names it. For the benchmarks' main(), on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rewire::bench {

// "64", "8K", "32M", "1G": binary multiples, as nccl-tests has them.
[[nodiscard]] absl::StatusOr<int64_t> ParseSize(std::string_view text);

class Flags {
 public:
  Flags(std::string program, std::string summary);

  // `names` is "-b,--minbytes" or one of the two. The target holds the default until Parse.
  void Int(std::string_view names, int64_t* target, int64_t min, int64_t max, std::string text);
  void Size(std::string_view names, int64_t* target, int64_t min, int64_t max, std::string text);
  void Real(std::string_view names, double* target, double min, double max, std::string text);
  // One of `allowed`; anything where that is empty.
  void Text(std::string_view names, std::string* target, std::vector<std::string> allowed,
            std::string text);
  // Takes no value.
  void Switch(std::string_view names, bool* target, std::string text);

  // Also accepts --name=value. On an error the targets are not to be used.
  [[nodiscard]] absl::Status Parse(const std::vector<std::string>& arguments);
  // For main(): --help prints the usage and exits 0, an error prints it and exits 2.
  void ParseOrExit(int argc, char** argv);
  // Whether the flag was on the command line; by either name.
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
  // Its place in flags_; flags_.size() where there is none.
  [[nodiscard]] size_t Find(std::string_view name) const;

  const std::string program_;
  const std::string summary_;
  std::vector<Flag> flags_;
};

}  // namespace rewire::bench
