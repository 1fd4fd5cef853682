// The JSON report of a benchmark: schema and version, where and when it ran, the headline numbers,
// summaries with their raw samples. With --json exactly one object goes to stdout and all text to
// stderr. For the benchmarks' main(), on its thread.
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

// Cores, processor, kernel, compiler, build type, sanitizers, date (UTC).
[[nodiscard]] nlohmann::ordered_json MachineFacts();
[[nodiscard]] nlohmann::ordered_json ToJson(const Summary& summary);

class Report {
 public:
  // `name` as in `./dev bench NAME`.
  Report(std::string name, bool json);

  // Where text for people goes.
  [[nodiscard]] FILE* text() const { return json_ ? stderr : stdout; }
  // A headline number, at the top level of the object: what the bars are checked against.
  void Set(std::string_view key, nlohmann::ordered_json value);
  void SetConfig(std::string_view key, nlohmann::ordered_json value);
  // A summary with the samples it came from, under "measurements".
  [[nodiscard]] absl::Status AddSamples(std::string_view key, std::string_view unit,
                                        const std::vector<double>& samples);
  [[nodiscard]] nlohmann::ordered_json Object() const;

  // Prints the object where it was asked for, and writes it to `file` where that is not empty.
  [[nodiscard]] absl::Status Finish(const std::string& file = {}) const;

 private:
  const std::string name_;
  const bool json_;
  nlohmann::ordered_json values_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json config_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json measurements_ = nlohmann::ordered_json::object();
};

}  // namespace rewire::bench
