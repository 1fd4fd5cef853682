// The output of `rewire plan`: the bytes of each member and between nodes, as a table, as JSON and
// as an SVG picture. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/state/plan/layout_plan.h"

namespace rewire::control {

class PlanReport {
 public:
  // from, to: must outlive the report.
  PlanReport(const state::SeatedLayout& from, const state::SeatedLayout& to);

  void Add(const state::Move& move);

  [[nodiscard]] nlohmann::ordered_json ToJson() const;
  [[nodiscard]] std::string Text() const;
  // Draws the bytes from each node to each other one, as squares; of members where there are at
  // most 64, or one node.
  [[nodiscard]] std::string Svg(const std::string& title) const;

 private:
  // Bytes. before, after: the state of the member in the old and in the new world.
  struct Member {
    uint32_t node = 0;
    std::optional<uint32_t> slot;  // in the new world
    uint64_t before = 0, after = 0, stays = 0, sends = 0, receives = 0;
    // While both parts are there: the old one, and what arrives beside it.
    [[nodiscard]] uint64_t peak() const { return before + (after - stays); }
  };
  using Links = std::map<std::pair<uint32_t, uint32_t>, uint64_t>;

  [[nodiscard]] uint64_t Sum(uint64_t Member::*bytes) const;
  [[nodiscard]] uint64_t BetweenNodes() const;
  [[nodiscard]] std::vector<std::pair<uint64_t, std::pair<uint32_t, uint32_t>>> BusiestLinks()
      const;

  const state::SeatedLayout& from_;
  std::map<MemberId, Member> members_;
  Links between_members_;
  Links between_nodes_;  // of different nodes
  uint64_t inside_ = 0;  // between members of one node
};

}  // namespace rewire::control
