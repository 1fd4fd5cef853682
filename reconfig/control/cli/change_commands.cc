// `rewire resize|drain|replace|rebuild`: requests a change and shows its progress.
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "reconfig/control/cli/command_text.h"
#include "reconfig/control/cli/commands.h"
#include "reconfig/control/cli/control_client.h"
#include "reconfig/control/cli/option_checks.h"

namespace rewire::control {
namespace {

using nlohmann::json;

struct Options {
  std::shared_ptr<AgentChoice> choice;
  uint32_t size = 0;
  std::vector<uint32_t> members;
  std::string within;
  std::string reason;
  std::string timeout = "10m";
};

// The agent makes the change, so an interrupted command does not stop it.
void OnInterrupt(int signal) {
  constexpr char kText[] =
      "\nrewire: the command ends; a change that the agent has begun continues (`rewire status` "
      "shows its result)\n";
  static_cast<void>(!::write(STDERR_FILENO, kText, sizeof kText - 1));
  ::raise(signal);  // SA_RESETHAND: ends the command
}

void TellAtInterrupt() {
  struct sigaction action {};
  action.sa_handler = &OnInterrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    // A shell's background command ignores SIGINT.
    if (before.sa_handler == SIG_DFL) ::sigaction(signal, &action, nullptr);
  }
}

int Change(const Options& o, json command) {
  const absl::StatusOr<milliseconds> timeout = ParseDuration(o.timeout);
  if (!timeout.ok()) {
    Refused("--timeout: " + std::string(timeout.status().message()));
    return kExitUsage;
  }
  if (!o.within.empty()) {
    const absl::StatusOr<milliseconds> within = ParseDuration(o.within);
    if (!within.ok() || within->count() == 0) {
      Refused("--within: '" + o.within +
              "': must be a time such as 120s, of more than 0 and at most ten days");
      return kExitUsage;
    }
    command["within_ms"] = static_cast<uint64_t>(within->count());
  }
  if (!o.reason.empty()) command["reason"] = o.reason;
  command["timeout_ms"] = static_cast<uint64_t>(timeout->count());
  TellAtInterrupt();
  // The agent enforces the timeout; five more seconds are for its answer.
  const absl::StatusOr<json> answer = AskAgent(*o.choice, command, *timeout + seconds(5));
  if (absl::IsAborted(answer.status())) {
    return Failed(*o.choice,
                  absl::UnavailableError(
                      std::string(answer.status().message()) +
                      " (if the job still runs, `rewire status` shows the result of the change)"));
  }
  if (!answer.ok()) return Failed(*o.choice, answer.status());
  if (o.choice->json) {
    std::cout << answer->dump() << "\n";
    return kExitOk;
  }
  const json& transition = answer->at("transition");
  std::cout << (transition.is_null() ? "nothing to change: epoch " + answer->at("epoch").dump()
                                     : TransitionText(transition))
            << "\nmembers by slot: " << answer->at("world").dump() << "\n";
  return kExitOk;
}

std::shared_ptr<Options> AddCommon(CLI::App* c) {
  auto o = std::make_shared<Options>();
  o->choice = AddAgentChoice(c, true);
  c->add_option("--reason", o->reason, "Reason of the change, shown in status and traces");
  c->add_option("--timeout", o->timeout,
                "Time to wait for the end; the change continues afterwards");
  return o;
}

}  // namespace

void AddChangeCommands(CLI::App* app, Action* action) {
  CLI::App* resize = app->add_subcommand(
      "resize", "Grow or shrink the world to N members; the newest members leave");
  auto o = AddCommon(resize);
  resize->add_option("N", o->size, "Number of members")->required()->check(CLI::Range(1, 100000));
  resize->callback([o, action] {
    *action = [o] { return Change(*o, {{"command", "resize"}, {"size", o->size}}); };
  });

  CLI::App* drain = app->add_subcommand("drain", "Let members leave; the other members continue");
  o = AddCommon(drain);
  drain->add_option("MEMBER", o->members, "Member ids (not slots)")
      ->required()
      ->check(MemberNumber());
  drain->add_option(
      "--within", o->within,
      "Deadline such as 120s: members still in the world then count as lost and are ended");
  drain->callback([o, action] {
    *action = [o] { return Change(*o, {{"command", "drain"}, {"members", o->members}}); };
  });

  CLI::App* replace = app->add_subcommand("replace", "Replace a member by a new process");
  o = AddCommon(replace);
  replace->add_option("MEMBER", o->members, "Member id (not slot)")
      ->required()
      ->expected(1)
      ->check(MemberNumber());
  replace->callback([o, action] {
    *action = [o] { return Change(*o, {{"command", "replace"}, {"members", o->members}}); };
  });

  CLI::App* rebuild = app->add_subcommand(
      "rebuild", "Build new communicators for the same members while training continues");
  o = AddCommon(rebuild);
  rebuild->callback([o, action] {
    *action = [o] { return Change(*o, {{"command", "rebuild"}}); };
  });
}

}  // namespace rewire::control
