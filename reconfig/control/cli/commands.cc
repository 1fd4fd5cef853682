// Parses the command line; see commands.h. Called by the main thread of `rewire`.
#include "reconfig/control/cli/commands.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "rewire/rewire_version.h"

namespace rewire::control {

int Refused(const std::string& text) {
  std::cerr << "rewire: " << text << "\n";
  return kExitRefused;
}

int Refused(const absl::Status& status) { return Refused(std::string(status.message())); }

int RunCommandLine(std::vector<std::string> arguments) {
  // The arguments after "--" are a program's command line, which the parser must not see.
  std::vector<std::string> program;
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) {
    program.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  CLI::App app("Rewire keeps a training job running while the hardware under it changes.",
               "rewire");
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version",
                       absl::StrCat("rewire ", REWIRE_VERSION_MAJOR, ".", REWIRE_VERSION_MINOR, ".",
                                    REWIRE_VERSION_PATCH),
                       "Print the version and exit");
  app.failure_message([](const CLI::App* at, const CLI::Error& e) {
    std::string command = "rewire";
    while (!at->get_subcommands().empty()) {
      at = at->get_subcommands().front();
      absl::StrAppend(&command, " ", at->get_name());
    }
    return absl::StrCat("rewire: ", e.what(), "\n`", command, " --help` prints the options.\n");
  });
  app.footer(
      "Exit status: 0 done, 1 refused or failed (the reason is on standard error), 2 usage.\n"
      "`rewire COMMAND --help` prints the options of a command.");
  Action action;
  AddRunCommand(&app, program, &action);
  AddViewCommands(&app, &action);
  AddChangeCommands(&app, &action);
  AddMoeCommands(&app, &action);
  AddPlanCommand(&app, &action);
  AddAgentCommand(&app, &action);
  std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& e) {
    const bool unknown = app.get_subcommands().empty() && !app.remaining().empty();
    if (unknown && e.get_exit_code() != 0) {
      Refused(absl::StrCat(app.remaining().front(),
                           ": not a command of rewire; `rewire --help` lists the commands"));
      return kExitUsage;
    }
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  const int status = action ? action() : kExitUsage;
  if (!std::cout.flush() && status == kExitOk) {
    return Refused(absl::StrCat("write to standard output: ", strerror(errno)));
  }
  return status;
}

}  // namespace rewire::control
