// `rewire status|wait|knobs|trace|metrics`: commands that change nothing.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/str_join.h"
#include "reconfig/control/cli/command_text.h"
#include "reconfig/control/cli/commands.h"
#include "reconfig/control/cli/control_client.h"

namespace rewire::control {
namespace {

using nlohmann::json;

constexpr Duration kPatience = seconds(10);

int Status(const AgentChoice& choice) {
  const absl::StatusOr<json> answer = AskAgent(choice, {{"command", "status"}}, kPatience);
  if (!answer.ok()) return Failed(choice, answer.status());
  std::cout << (choice.json ? answer->dump(2) + "\n" : StatusText(*answer));
  return kExitOk;
}

struct WaitOptions {
  std::shared_ptr<AgentChoice> choice;
  std::vector<std::string> what = {"steady"};
  std::string timeout = "10m";
};

// Parses "steady", "epoch N" or "epoch=N" into the command.
absl::StatusOr<json> WaitCommand(const WaitOptions& o) {
  json command = {{"command", "wait"}};
  std::string what;
  for (const std::string& word : o.what) what += (what.empty() ? "" : "=") + word;
  std::replace(what.begin(), what.end(), ' ', '=');  // "epoch N" as one word
  if (what != "steady") {
    uint64_t epoch = 0;
    const size_t equals = what.find('=');
    const char* end = what.data() + what.size();
    const bool good = equals != std::string::npos && what.substr(0, equals) == "epoch" &&
                      std::from_chars(what.data() + equals + 1, end, epoch).ptr == end && epoch > 0;
    if (!good) {
      return absl::InvalidArgumentError("--for: '" + absl::StrJoin(o.what, " ") +
                                        "': must be steady, or epoch N with N of 1 or more");
    }
    command["epoch"] = epoch;
  }
  const absl::StatusOr<milliseconds> timeout = ParseDuration(o.timeout);
  if (!timeout.ok()) {
    return absl::InvalidArgumentError("--timeout: " + std::string(timeout.status().message()));
  }
  command["timeout_ms"] = static_cast<uint64_t>(timeout->count());
  return command;
}

int Wait(const WaitOptions& o) {
  const absl::StatusOr<json> command = WaitCommand(o);
  if (!command.ok()) {
    Refused(command.status());
    return kExitUsage;
  }
  const Time deadline = Now() + milliseconds(command->at("timeout_ms").get<int64_t>());
  absl::StatusOr<json> answer;
  // A wait outlives the agent: the next agent is asked to wait for the remaining time.
  do {
    json again = *command;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Now());
    again["timeout_ms"] = static_cast<uint64_t>(std::max<int64_t>(0, left.count()));
    answer = AskAgent(*o.choice, again, left + seconds(5));
  } while (absl::IsAborted(answer.status()) && Now() < deadline);
  if (!answer.ok()) return Failed(*o.choice, answer.status());
  if (o.choice->json) {
    std::cout << answer->dump() << "\n";
  } else {
    std::cout << "epoch " << answer->at("epoch") << " " << answer->at("phase").get<std::string>()
              << "\n";
  }
  return kExitOk;
}

struct TraceOptions {
  std::shared_ptr<AgentChoice> choice;
  uint64_t epoch = 0;
  std::string file;
};

int Trace(const TraceOptions& o) {
  json command = {{"command", "trace"}};
  if (o.epoch != 0) command["epoch"] = o.epoch;
  const absl::StatusOr<json> answer = AskAgent(*o.choice, command, kPatience);
  if (!answer.ok()) return Failed(*o.choice, answer.status());
  const auto trace = answer->at("trace").get<std::string>();
  if (o.file == "-") {
    std::cout << trace << "\n";
    return kExitOk;
  }
  std::ofstream out(o.file, std::ios::trunc);
  out << trace << "\n";
  if (!out.flush()) {
    return Failed(*o.choice, absl::ErrnoToStatus(errno, "write the trace: file=" + o.file));
  }
  if (o.choice->json) {
    std::cout << json{{"ok", true}, {"epoch", answer->at("epoch")}, {"file", o.file}}.dump()
              << "\n";
  } else {
    std::cout << "epoch " << answer->at("epoch") << ": " << o.file
              << " (open it in https://ui.perfetto.dev)\n";
  }
  return kExitOk;
}

int MetricsText(const AgentChoice& choice) {
  const absl::StatusOr<json> answer = AskAgent(choice, {{"command", "metrics"}}, kPatience);
  if (!answer.ok()) return Failed(choice, answer.status());
  std::cout << (choice.json ? answer->dump() + "\n" : answer->at("text").get<std::string>());
  return kExitOk;
}

struct KnobsOptions {
  bool json = false;
  bool markdown = false;
};

}  // namespace

void AddViewCommands(CLI::App* app, Action* action) {
  CLI::App* status =
      app->add_subcommand("status", "Show the world, its members and the last transitions");
  auto choice = AddAgentChoice(status, false);
  status->callback([choice, action] { *action = [choice] { return Status(*choice); }; });

  CLI::App* wait = app->add_subcommand("wait", "Wait until no transition is in progress");
  auto w = std::make_shared<WaitOptions>();
  w->choice = AddAgentChoice(wait, true);
  wait->add_option("--for", w->what, "Condition: steady (default) or epoch N")->expected(1, 2);
  wait->add_option("--timeout", w->timeout, "Fail after this time");
  wait->callback([w, action] { *action = [w] { return Wait(*w); }; });

  CLI::App* trace = app->add_subcommand("trace", "Write the trace of a transition, for Perfetto");
  auto t = std::make_shared<TraceOptions>();
  t->choice = AddAgentChoice(trace, false);
  trace->add_option("FILE", t->file, "Output file; - for standard output")->required();
  trace->add_option("--epoch", t->epoch, "Epoch of the transition; default: the last transition")
      ->check(CLI::Range(uint64_t{1}, UINT64_MAX));
  trace->callback([t, action] { *action = [t] { return Trace(*t); }; });

  CLI::App* metrics =
      app->add_subcommand("metrics", "Print the agent's metrics as Prometheus text");
  choice = AddAgentChoice(metrics, false);
  metrics->callback([choice, action] { *action = [choice] { return MetricsText(*choice); }; });

  CLI::App* knobs =
      app->add_subcommand("knobs", "List the settings (REWIRE_*) with default, range and meaning");
  auto k = std::make_shared<KnobsOptions>();
  knobs->add_flag("--json", k->json, "Print JSON");
  knobs->add_flag("--markdown", k->markdown, "Print the table of docs/settings.md");
  knobs->callback([k, action] {
    *action = [k] {
      std::cout << KnobsTable(k->json       ? KnobsFormat::kJson
                              : k->markdown ? KnobsFormat::kMarkdown
                                            : KnobsFormat::kText);
      return kExitOk;
    };
  });
}

}  // namespace rewire::control
