// The sub-commands of `rewire`. Each adds its options to the parser and sets the action to run.
// Called by the main thread of `rewire`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rewire::control {

inline constexpr int kExitOk = 0;
inline constexpr int kExitRefused = 1;  // with a reason on standard error
inline constexpr int kExitUsage = 2;

using Action = std::function<int()>;
// Each function sets *action if its sub-command was given.
void AddAgentCommand(CLI::App* app, Action* action);
void AddRunCommand(CLI::App* app, const std::vector<std::string>& program, Action* action);
void AddChangeCommands(CLI::App* app, Action* action);
void AddViewCommands(CLI::App* app, Action* action);
void AddMoeCommands(CLI::App* app, Action* action);
void AddPlanCommand(CLI::App* app, Action* action);

// Parses and runs a command line without argv[0]. Returns the exit status.
int RunCommandLine(std::vector<std::string> arguments);

// Prints "rewire: text" on standard error. Returns kExitRefused.
int Refused(const std::string& text);
int Refused(const absl::Status& status);

}  // namespace rewire::control
