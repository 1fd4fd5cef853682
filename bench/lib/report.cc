#include "bench/lib/report.h"

#include <sys/utsname.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::bench {
namespace {

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string Date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string Compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

}  // namespace

nlohmann::ordered_json MachineFacts() {
  utsname system{};
  const bool known = ::uname(&system) == 0;
  return {{"cores", std::thread::hardware_concurrency()},
          {"processor", Processor()},
          {"kernel", known ? system.release : "unknown"},
          {"architecture", known ? system.machine : "unknown"},
          {"compiler", Compiler()},
          {"build_type", REWIRE_BUILD_TYPE},
          {"sanitizers", REWIRE_SANITIZERS},
          {"date", Date()}};
}

nlohmann::ordered_json ToJson(const Summary& summary) {
  return {{"count", summary.count},
          {"min", summary.min},
          {"median", summary.median},
          {"median_low", summary.median_interval.low},
          {"median_high", summary.median_interval.high},
          {"median_coverage", summary.median_interval.coverage},
          {"mean", summary.mean},
          {"p50", summary.p50},
          {"p99", summary.p99},
          {"max", summary.max},
          {"spread", summary.spread}};
}

Report::Report(std::string name, bool json) : name_(std::move(name)), json_(json) {}

void Report::Set(std::string_view key, nlohmann::ordered_json value) {
  values_[std::string(key)] = std::move(value);
}

void Report::SetConfig(std::string_view key, nlohmann::ordered_json value) {
  config_[std::string(key)] = std::move(value);
}

absl::Status Report::AddSamples(std::string_view key, std::string_view unit,
                                const std::vector<double>& samples) {
  const absl::StatusOr<Summary> summary = Summarize(samples);
  if (!summary.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(key), ": ", summary.status().message()));
  }
  nlohmann::ordered_json entry = ToJson(*summary);
  entry["unit"] = std::string(unit);
  entry["samples"] = samples;
  measurements_[std::string(key)] = std::move(entry);
  return absl::OkStatus();
}

nlohmann::ordered_json Report::Object() const {
  nlohmann::ordered_json object = {{"schema", "rewire-bench-" + name_},
                                   {"version", kSchemaVersion}};
  object.update(values_);
  object["machine"] = MachineFacts();
  object["config"] = config_;
  object["measurements"] = measurements_;
  return object;
}

absl::Status Report::Finish(const std::string& file) const {
  const std::string text = Object().dump(2) + "\n";
  if (!file.empty()) {
    std::ofstream out(file);
    out << text;
    out.close();
    if (!out) {
      return absl::UnavailableError(
          absl::StrCat("write report: file=", file, ": ", std::strerror(errno)));
    }
  }
  if (!json_) return absl::OkStatus();
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return absl::UnavailableError("write report: cannot write to stdout");
  }
  return absl::OkStatus();
}

}  // namespace rewire::bench
