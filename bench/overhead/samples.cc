#include "bench/overhead/samples.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace rewire::bench {

absl::Status Samples::Write(const std::string& path) const {
  nlohmann::json json;
  json["steps_of_round"] = steps_of_round;
  json["background"] = {threads_cpu_ns, agent_cpu_ns, elapsed_ns, rewire_steps};
  json["update_ns"] = update_ns;
  json["rounds"] = nlohmann::json::array();
  for (const Round& round : rounds) json["rounds"].push_back({round.cpu_ns, round.wall_ns});
  std::ofstream file(path);
  file << json.dump();
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<Samples> Samples::Read(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) return absl::NotFoundError(absl::StrCat("no samples in ", path));
  Samples samples;
  samples.steps_of_round = json.at("steps_of_round");
  const auto& background = json.at("background");
  samples.threads_cpu_ns = background.at(0);
  samples.agent_cpu_ns = background.at(1);
  samples.elapsed_ns = background.at(2);
  samples.rewire_steps = background.at(3);
  samples.update_ns = json.at("update_ns").get<std::vector<double>>();
  for (const auto& each : json.at("rounds")) {
    Round round;
    for (int way = 0; way < kWays; ++way) {
      round.cpu_ns[way] = each.at(0).at(way);
      round.wall_ns[way] = each.at(1).at(way);
    }
    samples.rounds.push_back(round);
  }
  return samples;
}

}  // namespace rewire::bench
