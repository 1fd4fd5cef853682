// Parts of `./dev bench plan`. Each prints one JSON object, which plan.py compares with solvers:
//   cover  random small layouts of every pattern: every element has one source, counted one by one
//   seats  a transformer's change: the bytes that each member keeps in each slot, and the choice
//   links  a transformer's change: what crosses between nodes, and who could have sent it
//   time   a large change: the time to choose slots and to plan, the memory, checked members
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "bench/lib/command_line.h"
#include "bench/plan/any_model.h"
#include "bench/plan/checked_members.h"
#include "reconfig/state/plan/kept_bytes.h"
#include "reconfig/state/plan/overlap.h"
#include "reconfig/state/plan/seat_assignment.h"
#include "tests/unit/state/plan/checked_moves.h"

namespace rewire::bench {
namespace {

using nlohmann::json;
using state::Move;
using state::ParallelLayout;
using state::Seat;
using state::SeatedLayout;

double Seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void Plan(const SeatedLayout& from, const SeatedLayout& to,
          const std::function<void(const Move&)>& visit) {
  const absl::Status planned = PlanMoves(state::Sources(from), to, visit);
  if (planned.ok()) return;
  std::cerr << "plan_perf: " << planned << "\n";
  std::exit(1);
}

json Cover(uint64_t first, uint64_t pairs) {
  uint64_t wrong = 0;
  uint64_t crossings = 0;
  uint64_t least = 0;
  std::string error;
  for (uint64_t seed = first; seed < first + pairs; ++seed) {
    const state::AnyChange change(seed);
    std::map<uint32_t, std::vector<Move>> moves;
    const absl::Status planned =
        PlanMoves(state::Sources(change.from), change.to,
                  [&](const Move& move) { moves[move.tensor].push_back(move); });
    bool good = planned.ok() && CheckSameTensors(change.from, change.to).ok();
    for (uint32_t tensor = 0; tensor < change.from.layout->tensors().size(); ++tensor) {
      const state::CheckedMoves checked = CheckMoves(change.from, change.to, tensor, moves[tensor]);
      crossings += checked.crossings;
      least += checked.least_crossings;
      good = good && checked.error.empty() && checked.crossings == checked.least_crossings;
      if (error.empty() && !checked.error.empty()) {
        error = "seed " + std::to_string(seed) + ": " + checked.error;
      }
    }
    wrong += good ? 0 : 1;
  }
  return {{"pairs", pairs},
          {"wrong", wrong},
          {"error", error},
          {"crossings", crossings},
          {"least_crossings", least}};
}

json Seats(uint64_t seed, uint32_t max_slots) {
  const AnyModelChange change(seed, max_slots);
  const SeatedLayout from = change.from();
  const auto result = AssignSeats(from, change.to(), change.members());
  std::map<MemberId, uint32_t> old_slot;
  for (uint32_t slot = 0; slot < from.seats.size(); ++slot)
    old_slot[from.seats[slot].member] = slot;
  const state::KeptBytes kept(*from.layout, change.to());
  json rows = json::array();
  for (const Seat& seat : change.members()) {
    json row = json::array();
    const auto old = old_slot.find(seat.member);
    for (uint32_t next = 0; next < change.to().slots(); ++next) {
      row.push_back(old == old_slot.end() ? 0 : kept.Of(old->second, next));
    }
    rows.push_back(std::move(row));
  }
  return {{"kept", std::move(rows)},
          {"kept_bytes", result.kept_bytes},
          {"bound_bytes", result.bound_bytes}};
}

// For each element that a node lacks, one of the nodes that have it sends it. Elements with the
// same nodes on both sides are one group.
json Links(uint64_t seed, uint32_t max_slots) {
  const AnyModelChange change(seed, max_slots);
  const SeatedLayout from = change.from();
  const auto result = AssignSeats(from, change.to(), change.members());
  const SeatedLayout to{&change.to(), result.seats};
  std::map<std::set<uint32_t>, uint64_t> groups;  // bytes by the nodes that have them
  std::map<uint32_t, uint64_t> received;
  state::OverlapCache overlaps(*from.layout, *to.layout);
  for (uint32_t tensor = 0; tensor < from.layout->tensors().size(); ++tensor) {
    const auto old_slots =
        state::SlotsByClass(ClassesBySlot(*from.layout, tensor), from.layout->Classes(tensor));
    const auto next_slots =
        state::SlotsByClass(ClassesBySlot(*to.layout, tensor), to.layout->Classes(tensor));
    for (const state::Overlap& overlap : overlaps.Of(tensor)) {
      std::set<uint32_t> have;
      for (const uint32_t number : overlap.from) {
        for (const uint32_t slot : old_slots[number]) have.insert(from.seats[slot].node);
      }
      std::set<uint32_t> need;
      for (const uint32_t number : overlap.to) {
        for (const uint32_t slot : next_slots[number]) need.insert(to.seats[slot].node);
      }
      const uint64_t bytes =
          overlap.chunk.elements() * from.layout->tensors()[tensor].element_bytes;
      for (const uint32_t node : need) {
        if (have.contains(node)) continue;
        groups[have] += bytes;
        received[node] += bytes;
      }
    }
  }
  std::map<MemberId, uint32_t> node;
  for (const SeatedLayout* world : {&from, &to}) {
    for (const Seat& seat : world->seats) node[seat.member] = seat.node;
  }
  std::map<uint32_t, uint64_t> out;
  std::map<uint32_t, uint64_t> in;
  Plan(from, to, [&](const Move& move) {
    if (node[move.source] == node[move.target]) return;
    const uint64_t bytes =
        move.chunk.elements() * from.layout->tensors()[move.tensor].element_bytes;
    out[node[move.source]] += bytes;
    in[node[move.target]] += bytes;
  });
  json object = {{"groups", json::array()}, {"busiest", 0}, {"most_received", 0}};
  for (const auto& [have, bytes] : groups) {
    object["groups"].push_back({{"nodes", have}, {"bytes", bytes}});
  }
  const auto most = [](const std::map<uint32_t, uint64_t>& by_node) {
    uint64_t bytes = 0;
    for (const auto& [id, count] : by_node) bytes = std::max(bytes, count);
    return bytes;
  };
  object["busiest"] = std::max(most(out), most(in));
  object["most_received"] = most(received);
  object["crossed_as_needed"] = in == received;
  return object;
}

json Time(bool large, uint32_t checked) {
  ModelSizes sizes;
  sizes.hidden = 12288;
  sizes.layers = large ? 32 : 320;
  sizes.matrices = 7;
  state::Parallel before;
  before.tensor = 8;
  before.pipeline = 16;
  before.data = large ? 1024 : 8;
  before.layers = sizes.layers;
  state::Parallel after = before;
  if (large) {
    after.data = 1000;
  } else {
    after.tensor = 4;
    after.pipeline = 32;
    after.split.assign(32, 10);
  }
  const std::vector<state::LogicalTensor> tensors = TensorsOf(sizes);
  const ParallelLayout old_layout = *ParallelLayout::Make(before, {.stage = 1}, tensors);
  const ParallelLayout new_layout = *ParallelLayout::Make(after, {.stage = 1}, tensors);
  SeatedLayout from{&old_layout, {}};
  for (uint32_t slot = 0; slot < before.slots(); ++slot) from.seats.push_back({slot, slot / 8});
  // Whole nodes leave, here and there.
  std::vector<Seat> members = from.seats;
  std::mt19937_64 random(7);
  while (members.size() > after.slots()) {
    const size_t at = random() % (members.size() / 8) * 8;
    members.erase(members.begin() + static_cast<int64_t>(at),
                  members.begin() + static_cast<int64_t>(at) + 8);
  }
  const double start = Seconds();
  const auto assigned = AssignSeats(from, new_layout, members);
  const double seated = Seconds();
  const SeatedLayout to{&new_layout, assigned.seats};
  uint64_t moves = 0;
  Plan(from, to, [&](const Move&) { ++moves; });
  const double planned = Seconds();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::vector<MemberId> targets;
  for (uint32_t i = 0; i < checked; ++i)
    targets.push_back(members[random() % members.size()].member);
  CheckedMembers check(from, to, targets);
  Plan(from, to, [&](const Move& move) { check.Add(move); });
  return {{"old_slots", before.slots()},
          {"slots", after.slots()},
          {"tensors", tensors.size()},
          {"moves", moves},
          {"seconds", planned - start},
          {"seconds_seats", seated - start},
          {"kept_of_bound", static_cast<double>(assigned.kept_bytes) /
                                static_cast<double>(std::max<uint64_t>(1, assigned.bound_bytes))},
          {"rss_gib", static_cast<double>(usage.ru_maxrss) / (1 << 20)},
          {"checked", checked},
          {"error", check.Finish()}};
}

int Main(int argc, char** argv) {
  CLI::App app("parts of `./dev bench plan`", "plan_perf");
  app.require_subcommand(1);
  json result;
  uint64_t seed = 1;
  uint64_t pairs = 10000;
  uint32_t slots = 64;
  uint32_t members = 1000;
  bool large = false;
  CLI::App* cover = app.add_subcommand("cover", "random layouts, element by element");
  cover->add_option("--seed", seed, "the first seed");
  cover->add_option("--pairs", pairs, "pairs of layouts");
  CLI::App* seats = app.add_subcommand("seats", "the bytes kept in each slot, and the choice");
  CLI::App* links = app.add_subcommand("links", "what crosses between nodes");
  for (CLI::App* part : {seats, links}) {
    part->add_option("--seed", seed, "of the change");
    part->add_option("--slots", slots, "at most, in each world")->check(CLI::Range(2, 4096));
  }
  CLI::App* time = app.add_subcommand("time", "a large change");
  time->add_flag("--large", large, "131,072 slots instead of 1,024");
  time->add_option("--members", members, "members whose moves are checked");
  cover->callback([&] { result = Cover(seed, pairs); });
  seats->callback([&] { result = Seats(seed, slots); });
  links->callback([&] { result = Links(seed, slots); });
  time->callback([&] { result = Time(large, members); });
  ParseOrExit(&app, argc, argv);
  std::cout << result.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
