// Builds the JSON report of a benchmark: schema and version, machine and date, headline numbers,
// and summaries with their raw samples. With --json exactly one object goes to stdout and
// all text goes to stderr. For the benchmarks' main(), on its thread. Thread-compatible.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "bench/lib/statistics.h"

namespace rewire::bench {

inline constexpr int kSchemaVersion = 1;

// Returns cores, processor, kernel, architecture, compiler, build type, sanitizers and date (UTC).
[[nodiscard]] nlohmann::ordered_json MachineFacts();
[[nodiscard]] nlohmann::ordered_json ToJson(const Summary& summary);

class Report {
 public:
  // `name` is the NAME of `./dev bench NAME`.
  Report(std::string name, bool json);

  // Returns the stream for text that people read.
  [[nodiscard]] FILE* text() const { return json_ ? stderr : stdout; }
  // Sets a headline value at the top level of the object. The limit of a value has the same key
  // with the suffix "_bar".
  void Set(std::string_view key, nlohmann::ordered_json value);
  void SetConfig(std::string_view key, nlohmann::ordered_json value);
  // Adds a summary with its samples, under "measurements".
  [[nodiscard]] absl::Status AddSamples(std::string_view key, std::string_view unit,
                                        const std::vector<double>& samples);
  [[nodiscard]] nlohmann::ordered_json Object() const;

  // Writes the object to the file `file`, unless that name is empty, and to stdout if `json` was
  // set.
  [[nodiscard]] absl::Status Finish(const std::string& file = {}) const;

 private:
  const std::string name_;
  const bool json_;
  nlohmann::ordered_json values_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json config_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json measurements_ = nlohmann::ordered_json::object();
};

}  // namespace rewire::bench
