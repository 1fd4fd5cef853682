// `rewire moe record|replay`: recordings of the router's counts. Needs no agent.
#include <cerrno>
#include <fstream>
#include <iostream>
#include <memory>

#include "reconfig/control/cli/commands.h"
#include "reconfig/control/cli/replay_report.h"
#include "reconfig/moe/plan/count_text.h"
#include "reconfig/moe/plan/recording.h"
#include "reconfig/moe/plan/replay.h"

namespace rewire::control {
namespace {

using nlohmann::ordered_json;

std::string ShapeText(const moe::RecordedShape& shape) {
  return "nodes=" + std::to_string(shape.topology.nodes) +
         " devices per node=" + std::to_string(shape.topology.per_node) +
         " experts=" + std::to_string(shape.experts);
}

struct RecordOptions {
  std::string text;
  std::string file;
  moe::RecordedShape shape{{1, 0}, 0};
};

int Record(const RecordOptions& o) {
  std::ifstream file;
  if (o.text != "-") {
    file.open(o.text);
    if (!file) return Refused(absl::ErrnoToStatus(errno, "read counts: file=" + o.text));
  }
  const auto table = moe::ReadCountText(o.text == "-" ? std::cin : file,
                                        o.text == "-" ? "standard input" : o.text, o.shape);
  if (!table.ok()) return Refused(table.status());
  absl::StatusOr<moe::CountWriter> writer = moe::CountWriter::Create(o.file, table->shape);
  if (!writer.ok()) return Refused(writer.status());
  for (const moe::Recorded& r : table->records) {
    if (const absl::Status status = writer->Add(r); !status.ok()) return Refused(status);
  }
  std::cout << o.file << ": " << ShapeText(table->shape) << ", " << table->records.size()
            << " records\n";
  return kExitOk;
}

struct ReplayCommand {
  std::string file;
  std::string plan = "balance";
  std::string plot;
  bool json = false;
  moe::ReplayOptions options;
};

// Replays all readable records. Returns the error that ended the reading.
absl::Status ReplayAll(moe::CountReader* reader, moe::Replay* replay, ReplayReport* report,
                       LoadPlot* plot) {
  for (;;) {
    absl::StatusOr<std::optional<moe::Recorded>> next = reader->Next();
    if (!next.ok()) return next.status();
    if (!next->has_value()) return absl::OkStatus();
    const absl::StatusOr<moe::Replayed> replayed = replay->Next(**next);
    if (!replayed.ok()) return replayed.status();
    report->Add((*next)->layer, *replayed);
    if (plot != nullptr) plot->Add(replayed->before, replayed->after);
  }
}

int Replay(ReplayCommand o) {
  absl::StatusOr<moe::CountReader> reader = moe::CountReader::Open(o.file);
  if (!reader.ok()) return Refused(reader.status());
  const auto name = std::find(moe::kReplayPlanNames.begin(), moe::kReplayPlanNames.end(), o.plan);
  o.options.plan = static_cast<moe::ReplayPlan>(name - moe::kReplayPlanNames.begin());
  o.options.shape = reader->shape();
  absl::StatusOr<moe::Replay> replay = moe::Replay::Create(o.options);
  if (!replay.ok()) return Refused(o.file + ": " + std::string(replay.status().message()));
  ReplayReport report;
  LoadPlot plot(reader->shape().topology);
  const absl::Status status =
      ReplayAll(&*reader, &*replay, &report, o.plot.empty() ? nullptr : &plot);
  if (o.json) {
    ordered_json object = {{"ok", status.ok()}, {"file", o.file}, {"plan", o.plan}};
    object.update(report.ToJson());
    if (!status.ok()) object["error"] = status.message();
    std::cout << object.dump(2) << "\n";
  } else {
    std::cout << o.file << ": " << ShapeText(reader->shape()) << "; plan " << o.plan << "\n"
              << report.Text();
  }
  if (!o.plot.empty()) {
    std::ofstream out(o.plot, std::ios::trunc);
    out << plot.Svg(o.file + ", plan " + o.plan);
    if (!out.flush()) return Refused(absl::ErrnoToStatus(errno, "write the plot: file=" + o.plot));
  }
  return status.ok() ? kExitOk : Refused(status);
}

}  // namespace

void AddMoeCommands(CLI::App* app, Action* action) {
  CLI::App* moe = app->add_subcommand("moe", "Record and replay a router's token counts");
  moe->require_subcommand(1);

  CLI::App* record = moe->add_subcommand("record", "Make a recording from a text file");
  auto r = std::make_shared<RecordOptions>();
  record
      ->add_option(
          "TEXT", r->text,
          "Text file: header micro_batch,layer,source,expert,tokens, then rows of numbers; "
          "- for standard input")
      ->required();
  record->add_option("FILE", r->file, "Path of the new recording; the file must not exist")
      ->required();
  record->add_option("--nodes", r->shape.topology.nodes, "Number of nodes (default 1)")
      ->check(CLI::Range(1U, 1U << 24));
  record
      ->add_option("--devices", r->shape.topology.per_node, "Devices per node; default: as in TEXT")
      ->check(CLI::Range(1U, 1U << 24));
  record->add_option("--experts", r->shape.experts, "Number of experts; default: as in TEXT")
      ->check(CLI::Range(1U, 1U << 24));
  record->callback([r, action] { *action = [r] { return Record(*r); }; });

  CLI::App* replay = moe->add_subcommand(
      "replay", "Compare the balance of recorded micro-batches without and with a plan");
  auto p = std::make_shared<ReplayCommand>();
  replay->add_option("FILE", p->file, "Path of the recording")->required();
  replay->add_option("--plan", p->plan, "Planner; default: balance")
      ->check(CLI::IsMember(
          std::vector<std::string>(moe::kReplayPlanNames.begin(), moe::kReplayPlanNames.end())));
  replay
      ->add_option("--capacity", p->options.capacity,
                   "Experts per device; default: the minimum for all experts")
      ->check(CLI::Range(1U, 1U << 24));
  replay
      ->add_option("--dynamic", p->options.dynamic,
                   "With plan greedy or balance: experts per device that may move (default 4)")
      ->check(CLI::Range(0U, 1U << 24));
  replay
      ->add_option("--expert-bytes", p->options.sizes.expert_bytes,
                   "With plan composed: bytes of an expert's weights (default 72 MiB)")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 40));
  replay
      ->add_option("--token-bytes", p->options.sizes.token_bytes,
                   "With plan composed: bytes of a token (default 12288)")
      ->check(CLI::Range(0U, 1U << 24));
  replay->add_option("--plot", p->plot,
                     "Write an SVG file with the load of each device before and after");
  replay->add_flag("--json", p->json, "Print one JSON object on standard output");
  replay->callback([p, action] { *action = [p] { return Replay(*p); }; });
}

}  // namespace rewire::control
