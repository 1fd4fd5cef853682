#include "bench/swap/report_lines.h"

#include <nlohmann/json.hpp>

namespace rewire::bench {

std::string MemberReport::Encode() const {
  nlohmann::json json;
  json["counts"] = {issued, completed, wrong, stale, host_waits, swaps, nice_refused};
  json["leaked"] = {leaked_fds, leaked_threads};
  json["build_ms"] = build_ms;
  json["median_op_us"] = median_op_us;
  json["op_spread_us"] = op_spread_us;
  json["call_cpu_us"] = call_cpu_us;
  json["init_us"] = init_us;
  json["shrink_us"] = shrink_us;
  json["seen"] = nlohmann::json::array();
  for (const SwapSeen& s : seen) {
    json["seen"].push_back({s.epoch, s.warm_us, s.cut_us, s.before_us, s.build_us_per_op,
                            s.longest_us, s.cut_cpu_us, s.delayed, s.delayed_before});
  }
  return json.dump();
}

absl::StatusOr<MemberReport> MemberReport::Decode(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::InternalError("a member's report is not JSON");
  MemberReport report;
  const auto& counts = json.at("counts");
  report.issued = counts.at(0);
  report.completed = counts.at(1);
  report.wrong = counts.at(2);
  report.stale = counts.at(3);
  report.host_waits = counts.at(4);
  report.swaps = counts.at(5);
  report.nice_refused = counts.at(6);
  report.leaked_fds = json.at("leaked").at(0);
  report.leaked_threads = json.at("leaked").at(1);
  report.build_ms = json.at("build_ms");
  report.median_op_us = json.at("median_op_us");
  report.op_spread_us = json.at("op_spread_us");
  report.call_cpu_us = json.at("call_cpu_us").get<std::vector<double>>();
  report.init_us = json.at("init_us").get<std::vector<double>>();
  report.shrink_us = json.at("shrink_us").get<std::vector<double>>();
  for (const auto& s : json.at("seen")) {
    report.seen.push_back(
        {s.at(0), s.at(1), s.at(2), s.at(3), s.at(4), s.at(5), s.at(6), s.at(7), s.at(8)});
  }
  return report;
}

}  // namespace rewire::bench
