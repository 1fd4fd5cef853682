// What `rewire moe replay` prints: how even each layer's micro-batches were and have become. Pure;
// for one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "reconfig/moe/replay.h"

namespace rewire {

class ReplayReport {
 public:
  void Add(uint32_t layer, const moe::Replayed& replayed);

  // Each layer, and all of them: means over micro-batches of the busiest device's tokens above the
  // mean and over the mean, of copies of experts' weights and of moved tokens.
  [[nodiscard]] nlohmann::ordered_json ToJson() const;
  // The same as a table.
  [[nodiscard]] std::string Text() const;

 private:
  struct Evenness {
    double straggler = 0;      // tokens
    double max_over_mean = 0;  // 1 where there are no tokens
  };
  // Sums over micro-batches.
  struct Sums {
    uint64_t micro_batches = 0;
    Evenness before, after;
    double copies = 0;
    double moved_tokens = 0;
  };
  static void AddTo(Evenness* sum, const std::vector<uint64_t>& loads);
  static nlohmann::ordered_json ToJson(const Sums& sums);

  std::map<uint32_t, Sums> layers_;
  Sums all_;
};

}  // namespace rewire
