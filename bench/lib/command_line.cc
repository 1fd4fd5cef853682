#include "bench/lib/command_line.h"

#include <cstdlib>

namespace rewire::bench {

void ParseOrExit(CLI::App* app, int argc, char** argv) {
  for (CLI::Option* option : app->get_options()) option->capture_default_str();
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    exit(app->exit(e) == 0 ? 0 : 2);
  }
}

}  // namespace rewire::bench
