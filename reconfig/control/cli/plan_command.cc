// `rewire plan`: what a change from one parallel layout to another would move. Needs no agent.
#include <cerrno>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "reconfig/control/cli/commands.h"
#include "reconfig/control/cli/option_checks.h"
#include "reconfig/control/cli/plan_report.h"
#include "reconfig/state/plan/layout_file.h"
#include "reconfig/state/plan/seat_assignment.h"

namespace rewire::control {
namespace {

struct PlanOptions {
  std::string from;
  std::string to;
  std::string plot;
  double node_gbps = 0;
  double member_gbps = 0;
  bool json = false;
};

absl::StatusOr<state::LayoutFile> ReadLayout(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char part[1 << 16];
  while (file.read(part, sizeof part), file.gcount() > 0) {
    text.append(part, static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) return absl::ErrnoToStatus(errno, "read the layout: file=" + path);
  return state::ParseLayout(path, text);
}

int Plan(const PlanOptions& o) {
  const absl::StatusOr<state::LayoutFile> from = ReadLayout(o.from);
  if (!from.ok()) return Refused(std::string(from.status().message()));
  absl::StatusOr<state::LayoutFile> to = ReadLayout(o.to);
  if (!to.ok()) return Refused(std::string(to.status().message()));
  const state::SeatedLayout before = from->seated();
  if (const absl::Status same = state::CheckSameTensors(before, to->seated()); !same.ok()) {
    return Refused(std::string(same.message()));
  }
  if (!to->seats_given) to->seats = AssignSeats(before, to->layout, to->seats).seats;
  const state::SeatedLayout after = to->seated();
  PlanReport report(before, after);
  const absl::Status planned =
      PlanMoves(state::Sources(before), after, [&](const state::Move& move) { report.Add(move); });
  if (!planned.ok()) return Refused(std::string(planned.message()));
  const bool timed = o.node_gbps > 0 || o.member_gbps > 0;
  const double seconds = report.SecondsAtLeast({o.node_gbps / 8 * 1e9, o.member_gbps / 8 * 1e9});
  if (o.json) {
    nlohmann::ordered_json object = {{"ok", true}, {"from", o.from}, {"to", o.to}};
    object.update(report.ToJson());
    if (timed) object["seconds_at_least"] = seconds;
    std::cout << object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    std::cout << o.from << ": " << before.seats.size() << " slots; " << o.to << ": "
              << after.seats.size() << " slots; " << from->layout.tensors().size() << " tensors\n"
              << (timed ? absl::StrFormat("takes at least      %.3g s\n", seconds) : "")
              << report.Text();
  }
  if (o.plot.empty()) return kExitOk;
  std::ofstream out(o.plot, std::ios::trunc);
  out << report.Svg(o.from + " to " + o.to);
  if (!out.flush()) return Refused(absl::ErrnoToStatus(errno, "write the plot: file=" + o.plot));
  return kExitOk;
}

}  // namespace

void AddPlanCommand(CLI::App* app, Action* action) {
  CLI::App* c = app->add_subcommand(
      "plan", "Show what a change from one layout of the state to another would move");
  auto o = std::make_shared<PlanOptions>();
  c->add_option("--from", o->from, "File of the present layout (docs/layouts.md)")
      ->required()
      ->check(NotEmpty());
  c->add_option("--to", o->to, "File of the wanted layout")->required()->check(NotEmpty());
  c->add_option("--plot", o->plot, "SVG file to write: who sends how much to whom")
      ->check(NotEmpty());
  c->add_option("--node-gbps", o->node_gbps,
                "Gbit/s of a node to other nodes, in each direction: gives the least possible time")
      ->check(CLI::Range(1e-6, 1e9));
  c->add_option("--member-gbps", o->member_gbps,
                "Gbit/s of a member inside its node, in each direction")
      ->check(CLI::Range(1e-6, 1e9));
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o, action] { *action = [o] { return Plan(*o); }; });
}

}  // namespace rewire::control
