// The output of `rewire plan`: the bytes of each member and between nodes, as a table, as JSON and
// as an SVG picture. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/state/plan/plan.h"

namespace rewire::control {

class PlanReport {
 public:
  // from, to: must outlive the report.
  PlanReport(const state::SeatedLayout& from, const state::SeatedLayout& to);

  void Add(const state::Move& move);

  // Bytes a second in each direction; 0: not known.
  struct Bandwidths {
    double node = 0;    // of a node's links to other nodes
    double member = 0;  // of a member's links inside its node
  };
  // Returns the time that the busiest link needs for its bytes, in seconds.
  [[nodiscard]] double SecondsAtLeast(const Bandwidths& bandwidths) const;

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
  // Both directions of one link.
  struct Traffic {
    uint64_t out = 0, in = 0;
    [[nodiscard]] uint64_t most() const { return std::max(out, in); }
  };
  using Links = std::map<std::pair<uint32_t, uint32_t>, uint64_t>;

  void CountOnce(const state::SeatedLayout& to);
  [[nodiscard]] uint64_t Sum(uint64_t Member::*bytes) const;
  [[nodiscard]] uint64_t BetweenNodes() const;
  [[nodiscard]] std::vector<std::pair<uint64_t, std::pair<uint32_t, uint32_t>>> BusiestLinks()
      const;

  const state::SeatedLayout& from_;
  std::map<MemberId, Member> members_;
  // The bytes that one member alone has, in the old and in the new world.
  uint64_t once_before_ = 0, once_after_ = 0;
  std::map<MemberId, Traffic> inside_links_;
  std::map<uint32_t, Traffic> node_links_;
  Links between_members_;
  Links between_nodes_;  // of different nodes
  uint64_t inside_ = 0;  // between members of one node
};

}  // namespace rewire::control
